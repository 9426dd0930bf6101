package policy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// temporaryPrefix begins the names of what a commit has not finished.
const temporaryPrefix = ".partial-"

// Commit makes version, which must be above Latest: it writes files into a
// temporary folder, syncs them, renames the folder and switches "latest". Until
// the switch, nothing has happened. Versions between may be missing.
func (p *Policy) Commit(version int, files Files) error {
	if err := p.commit(version, files); err != nil {
		return fmt.Errorf("policy %s: commit of version %d: %w", p.path, version, err)
	}
	return nil
}

func (p *Policy) commit(version int, files Files) error {
	if p.builtin {
		return errors.New("read-only")
	}
	latest, err := p.Latest()
	if errors.Is(err, fs.ErrNotExist) {
		latest, err = -1, nil
	}
	if err != nil {
		return err
	}
	name := folderName(version)
	if _, ok := parseFolderName(name); !ok || version <= latest {
		return fmt.Errorf("the latest version is %d", latest)
	}
	temporary, final := filepath.Join(p.path, temporaryPrefix+name), filepath.Join(p.path, name)
	// What an earlier process left under these names was never committed.
	for _, folder := range []string{temporary, final} {
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	if err := os.Mkdir(temporary, 0o777); err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if err := writeSynced(filepath.Join(temporary, file), files[file]); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := syncFolder(temporary); err != nil {
		return err
	}
	if err := os.Rename(temporary, final); err != nil {
		return err
	}
	link := filepath.Join(p.path, temporaryPrefix+latestLink)
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(name, link); err != nil {
		return err
	}
	if err := syncFolder(p.path); err != nil {
		return err
	}
	if err := os.Rename(link, filepath.Join(p.path, latestLink)); err != nil {
		return err
	}
	return syncFolder(p.path)
}

// writeSynced makes a file whose bytes are on the disk when it returns.
func writeSynced(path string, write func(io.Writer) error) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	buffered := bufio.NewWriterSize(file, 1<<16)
	if err := write(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return file.Sync()
}

// syncFolder puts the names in a folder on the disk.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Prune removes the files of versions below keepFrom, all but their
// MetricsFile, and OptimizerFile of every version below the latest. The latest
// version is never touched.
func (p *Policy) Prune(keepFrom int) error {
	latest, err := p.Latest()
	if err != nil {
		return err
	}
	err = p.eachVersion(func(version int, folder string) error {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return err
		}
		left := len(entries)
		for _, entry := range entries {
			name := entry.Name()
			old := version < min(keepFrom, latest) && name != MetricsFile
			if old || version < latest && name == OptimizerFile {
				if err := os.Remove(filepath.Join(folder, name)); err != nil {
					return err
				}
				left--
			}
		}
		if left == 0 && version < latest {
			return os.Remove(folder)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("policy %s: prune: %w", p.path, err)
	}
	return nil
}

// eachVersion calls visit for every version folder, ascending.
func (p *Policy) eachVersion(visit func(version int, folder string) error) error {
	if p.builtin {
		return nil
	}
	entries, err := os.ReadDir(p.path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if version, ok := parseFolderName(entry.Name()); ok {
			if err := visit(version, filepath.Join(p.path, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// discardUncommitted removes what a trainer that was killed has left: unfinished
// folders, and versions above the latest.
func (p *Policy) discardUncommitted() error {
	latest, err := p.Latest()
	if errors.Is(err, fs.ErrNotExist) {
		latest, err = -1, nil
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(p.path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		version, ok := parseFolderName(entry.Name())
		if ok && version > latest || strings.HasPrefix(entry.Name(), temporaryPrefix) {
			if err := os.RemoveAll(filepath.Join(p.path, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
