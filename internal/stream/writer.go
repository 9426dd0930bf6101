// Writing a stream.

package stream

import (
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

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

// encoder is one encoding of records.
type encoder interface {
	append(r row) error    // keeps the record, or a copy, until flush
	flush() error          // hands what was appended to the output
	close(count int) error // flushes and writes the end
}

// Writer writes one stream. It flushes at each environment and metric row, and
// in trajectory and credit streams when a group is complete (GroupSize rows,
// or a row of another group), so that a reader downstream can answer group by
// group. Where it flushes depends on the records alone, hence so do the bytes.
// It is for one goroutine.
type Writer struct {
	// OnRecord, if set, is called after each record written.
	OnRecord func()

	kind    Kind
	encoder encoder
	frame   *zstd.Encoder // of zstd JSONL, else nil
	records int
	group   string
	rows    int // of group
	err     error
	closed  bool
}

// NewWriter starts a stream of header.Kind on w. Close must be called for a
// whole stream; without it the stream is a cut one.
func NewWriter(w io.Writer, header Header, format Format) (*Writer, error) {
	if rowNodes[header.Kind] == nil {
		return nil, fmt.Errorf("no kind of stream is called %q", header.Kind)
	}
	header.Version = Version
	out := &Writer{kind: header.Kind}
	var err error
	if format.Arrow {
		out.encoder, err = newArrowEncoder(w, header, format.Zstd)
	} else {
		if format.Zstd {
			// One goroutine: more would only buffer more of the input.
			out.frame, err = zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
			if err != nil {
				return nil, err
			}
			w = out.frame
		}
		out.encoder, err = newJSONLEncoder(w, header)
	}
	if err != nil {
		return nil, err
	}
	return out, out.Flush()
}

// Records returns the number of records written so far.
func (w *Writer) Records() int { return w.records }

// WriteEnvironment writes a row of an environment stream.
func (w *Writer) WriteEnvironment(e *episode.Environment) error {
	err := w.wanted(KindEnvironment)
	if err == nil {
		err = checkEnvironment(e)
	}
	if err == nil {
		err = w.write(environmentRow(e))
	}
	if err != nil {
		return fmt.Errorf("environment %s: %w", e.EnvironmentID, err)
	}
	return w.Flush()
}

// WriteTrajectory writes a row of a trajectory or credit stream; of the
// latter, t.Credit must be set.
func (w *Writer) WriteTrajectory(t *episode.Trajectory) error {
	err := w.wanted(KindTrajectory, KindCredit)
	if err == nil {
		err = checkTrajectory(t, w.kind)
	}
	if err == nil && w.rows > 0 && w.group != t.GroupID {
		w.rows = 0
		err = w.Flush()
	}
	if err == nil {
		err = w.write(trajectoryRow(t))
	}
	if err != nil {
		return fmt.Errorf("trajectory %s: %w", t.TrajectoryID, err)
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
	err := w.wanted(KindMetric)
	if err == nil {
		err = w.write(metricRow(m))
	}
	if err != nil {
		return fmt.Errorf("metric row of step %d: %w", m.Step, err)
	}
	return w.Flush()
}

func (w *Writer) wanted(kinds ...Kind) error {
	for _, kind := range kinds {
		if w.kind == kind {
			return nil
		}
	}
	return fmt.Errorf("this is a stream of kind %q", w.kind)
}

func (w *Writer) write(r row) error {
	if w.closed {
		return errors.New("the stream is closed")
	}
	if w.err != nil {
		return w.err
	}
	if err := w.encoder.append(r); err != nil {
		return err
	}
	w.records++
	if w.OnRecord != nil {
		w.OnRecord()
	}
	return nil
}

// Flush hands everything written so far to the underlying writer. Commands do
// not call it, for it would change the bytes of compressed and Arrow streams:
// the writer flushes where the format says.
func (w *Writer) Flush() error {
	if w.err == nil {
		w.err = w.encoder.flush()
	}
	if w.err == nil && w.frame != nil {
		w.err = w.frame.Flush()
	}
	return w.err
}

// Close writes the end of the stream and flushes. It does not close the
// underlying writer.
func (w *Writer) Close() error {
	if w.closed || w.err != nil {
		return w.err
	}
	w.closed = true
	w.err = w.encoder.close(w.records)
	if w.err == nil && w.frame != nil {
		w.err = w.frame.Close()
	}
	return w.err
}
