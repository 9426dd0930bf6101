package policy

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// LockTrainer makes this process the trainer of p until release is called or
// the process ends, and removes what lies above the latest version. It fails at
// once if there is one already. On the builtin policy it does nothing.
func (p *Policy) LockTrainer() (release func(), err error) {
	release, err = p.lock("train")
	if err != nil || p.builtin {
		return release, err
	}
	if err := p.discardUncommitted(); err != nil {
		release()
		return nil, fmt.Errorf("policy %s: %w", p.path, err)
	}
	return release, nil
}

// LockRollout makes this process the rollout of p until release is called or
// the process ends. It fails at once if there is one already. On the builtin
// policy it does nothing.
func (p *Policy) LockRollout() (release func(), err error) { return p.lock("rollout") }

// lock takes the lock of one side. The system gives it back however the process
// ends, so a lock file says nothing by existing.
func (p *Policy) lock(side string) (release func(), err error) {
	if p.builtin {
		return func() {}, nil
	}
	// A plain descriptor: an os.File that nobody holds would be closed some day,
	// and the lock with it.
	descriptor, err := unix.Open(filepath.Join(p.path, side+".lock"), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return nil, fmt.Errorf("policy %s: lock: %w", p.path, err)
	}
	if err := unix.Flock(descriptor, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(descriptor)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("policy %s: another odyssey-%s is running on it", p.path, side)
		}
		return nil, fmt.Errorf("policy %s: lock: %w", p.path, err)
	}
	return sync.OnceFunc(func() { unix.Close(descriptor) }), nil
}
