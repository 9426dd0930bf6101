// Progress on stderr: a bar for the last command of a pipe on a terminal, a
// log line now and then otherwise.

package cmdline

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progressInterval is the time between two log lines.
const progressInterval = 30 * time.Second

type progress struct {
	mutex   sync.Mutex // of all that follows and of lines on stderr
	started bool
	bar     *progressbar.ProgressBar // nil: log lines
	total   int                      // records expected, 0: unknown
	records int
	start   time.Time
	next    time.Time
}

// ExpectRecords says how many records the output will have, for the progress
// display.
func (inv *Invocation) ExpectRecords(total int) {
	inv.progress.mutex.Lock()
	defer inv.progress.mutex.Unlock()
	inv.progress.total = total
	if inv.progress.bar != nil {
		inv.progress.bar.ChangeMax(total)
	}
}

func (inv *Invocation) startProgress() {
	p := &inv.progress
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.started || inv.Quiet || inv.shared.progress == "never" {
		return
	}
	p.started = true
	p.start = time.Now()
	p.next = p.start.Add(progressInterval)
	stdout, err := os.Stdout.Stat()
	last := err != nil || stdout.Mode()&os.ModeNamedPipe == 0
	if inv.shared.progress != "always" && !(last && term.IsTerminal(int(os.Stderr.Fd()))) {
		return
	}
	total := -1
	if p.total > 0 {
		total = p.total
	}
	p.bar = progressbar.NewOptions(total,
		progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(inv.command.Name),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("records"),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetRenderBlankState(false))
}

// tick counts a record written.
func (inv *Invocation) tick() {
	if line := inv.progress.tick(); line != "" {
		inv.say(line)
	}
}

// tick moves the bar or returns the log line that is due.
func (p *progress) tick() string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.records++
	if !p.started {
		return ""
	}
	if p.bar != nil {
		p.bar.Add(1)
		return ""
	}
	now := time.Now()
	if now.Before(p.next) {
		return ""
	}
	p.next = now.Add(progressInterval)
	rate := float64(p.records) / now.Sub(p.start).Seconds()
	line := fmt.Sprintf("%d records, %.3g/s", p.records, rate)
	if p.total > p.records {
		left := time.Duration(float64(p.total-p.records) / rate * float64(time.Second))
		line += fmt.Sprintf(", %d%%, %s left", 100*p.records/p.total, left.Round(time.Second))
	}
	return line
}

func (p *progress) clear() {
	if p.bar != nil {
		p.bar.Clear()
	}
}

func (inv *Invocation) endProgress() {
	inv.progress.mutex.Lock()
	defer inv.progress.mutex.Unlock()
	if inv.progress.bar != nil {
		inv.progress.bar.Finish()
		inv.progress.bar = nil
	}
}
