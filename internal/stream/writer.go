// Writing a stream.

package stream

import (
	"bufio"
	"fmt"
	"io"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Format is an encoding of a stream.
type Format struct {
	Arrow bool // Arrow IPC stream; else JSONL
	Zstd  bool // zstd: of the whole JSONL, of the bodies of Arrow
}

// The formats without compression.
var (
	JSONL = Format{}
	Arrow = Format{Arrow: true}
)

// Writer writes one stream. It flushes at each environment and metric row, and
// in trajectory and credit streams when a group is complete (GroupSize rows,
// or a row of another group), so that a reader downstream can answer group by
// group. It is for one goroutine.
type Writer struct {
	// OnRecord, if set, is called after each record written.
	OnRecord func()

	header  Header
	buffer  *bufio.Writer
	records int
	group   string
	rows    int // of group
	closed  bool
}

// NewWriter starts a stream of header.Kind on w. Close must be called for a
// whole stream; without it the stream is a cut one.
func NewWriter(w io.Writer, header Header, format Format) (*Writer, error) {
	header.Version = Version
	text, err := header.marshal()
	if err != nil {
		return nil, err
	}
	out := &Writer{header: header, buffer: bufio.NewWriterSize(w, 1<<16)}
	out.buffer.Write(append(text, '\n'))
	return out, out.buffer.Flush()
}

// Records returns the number of records written so far.
func (w *Writer) Records() int { return w.records }

// WriteEnvironment writes a row of an environment stream.
func (w *Writer) WriteEnvironment(e *episode.Environment) error {
	text, err := marshalStrict(e)
	if err == nil {
		text, err = appendExtra(text, e.Extra)
	}
	if err != nil {
		return fmt.Errorf("environment %s: %w", e.EnvironmentID, err)
	}
	if err := w.line(text); err != nil {
		return err
	}
	return w.Flush()
}

// WriteTrajectory writes a row of a trajectory or credit stream; of the
// latter, t.Credit must be set.
func (w *Writer) WriteTrajectory(t *episode.Trajectory) error {
	if w.rows > 0 && w.group != t.GroupID {
		w.rows = 0
		if err := w.Flush(); err != nil {
			return err
		}
	}
	text, err := marshalTrajectory(t, w.header.Kind)
	if err != nil {
		return fmt.Errorf("trajectory %s: %w", t.TrajectoryID, err)
	}
	if err := w.line(text); err != nil {
		return err
	}
	w.group = t.GroupID
	w.rows++
	if w.rows >= t.GroupSize {
		w.rows = 0
		return w.Flush()
	}
	return nil
}

// WriteMetric writes a row of a metric stream.
func (w *Writer) WriteMetric(m *episode.Metric) error {
	text, err := marshalStrict(m)
	if err == nil {
		text, err = appendExtra(text, m.Extra)
	}
	if err != nil {
		return fmt.Errorf("metric row of step %d: %w", m.Step, err)
	}
	if err := w.line(text); err != nil {
		return err
	}
	return w.Flush()
}

func (w *Writer) line(text []byte) error {
	w.records++
	if w.OnRecord != nil {
		w.OnRecord()
	}
	w.buffer.Write(text)
	return w.buffer.WriteByte('\n')
}

// Flush hands everything written so far to the underlying writer. Commands
// need not call it: the writer flushes where the format says.
func (w *Writer) Flush() error { return w.buffer.Flush() }

// Close writes the end record and flushes. It does not close the underlying
// writer.
func (w *Writer) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	fmt.Fprintf(w.buffer, "{\"end\": %d}\n", w.records)
	return w.buffer.Flush()
}
