//go:build amd64 && !noasm

package simd

// Matrix products on AVX2 and FMA.

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/odyssey-rl/odyssey/internal/kernel"
	"github.com/odyssey-rl/odyssey/internal/kernel/ref"
)

func variants() []string {
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		return []string{"avx2"}
	}
	return nil
}

func open(_ string, threads int) kernel.Backend {
	b := &avx2{pool: newPool(threads), scratch: make([]scratch, threads)}
	runtime.AddCleanup(b, (*pool).close, b.pool)
	return b
}

// avx2 is the backend of 256-bit vectors. Shapes that its assembly does not
// take (rows that are no multiple of 32 and the like) go to the reference.
type avx2 struct {
	*pool
	ref     ref.Backend
	scratch []scratch
	tasks   []attentionTask
}

func (b *avx2) Name() string { return "avx2" }
func (b *avx2) Threads() int { return b.threads }

const (
	panelColumns = 16
	tileRows     = 6
	// innerBlock bounds k in one pass, so that a panel of B stays in the first
	// level cache; rowBlock bounds the rows, so that the block of A stays in the
	// second.
	innerBlock = 384
	rowBlock   = 120
	// smallWork is the number of multiply-adds under which a second thread does
	// not pay.
	smallWork = 1 << 16
)

// scratch is the memory of one worker.
type scratch struct {
	a, c   []float32 // packed A; a partial panel of C
	p, dp  []float32 // attention: scores, their gradients
	kt, vt []float32 // attention backward: keys and values in panels
	stats  [2]float32
}

// grow returns a slice of n elements, reusing x, aligned to a cache line.
func grow(x []float32, n int) []float32 {
	if cap(x) >= n {
		return x[:n]
	}
	x = make([]float32, n+15)
	skip := (64 - int(uintptr(unsafe.Pointer(&x[0]))&63)) & 63 / 4
	return x[skip : skip+n]
}

// offset moves a pointer by n elements.
func offset(p *float32, n int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), 4*n))
}

// split divides n into pieces of a multiple of unit, about perThread for each
// thread, none above limit; it returns their size and number.
func (b *avx2) split(n, unit, limit int) (size, pieces int) {
	rounds := (n + b.threads*limit - 1) / (b.threads * limit)
	size = (n + b.threads*rounds - 1) / (b.threads * rounds)
	size = (size + unit - 1) / unit * unit
	return size, (n + size - 1) / size
}

// Pack lays B out in panels of 16 columns, [panels][K][16], zero beyond N.
func (b *avx2) Pack(dst *kernel.Packed, src []float32, k, n int, trans bool) {
	panels := (n + panelColumns - 1) / panelColumns
	src = src[:k*n]
	dst.K, dst.N, dst.Data = k, n, grow(dst.Data, panels*k*panelColumns)
	size, pieces := b.split(panels, 1, 1<<30)
	if k*n < smallWork/8 {
		size, pieces = panels, 1
	}
	b.each(pieces, func(_, piece int) {
		for p := piece * size; p < min(panels, (piece+1)*size); p++ {
			packPanel(dst.Data[p*k*panelColumns:(p+1)*k*panelColumns], src, k, n, p*panelColumns, trans)
		}
	})
}

func packPanel(dst, src []float32, k, n, column int, trans bool) {
	columns := min(panelColumns, n-column)
	if columns < panelColumns {
		clear(dst)
	}
	switch {
	case trans:
		for j := range columns {
			for i, v := range src[(column+j)*k : (column+j+1)*k] {
				dst[i*panelColumns+j] = v
			}
		}
	case columns == panelColumns:
		copyPanel(first(dst), first(src[column:]), k, 4*n)
	default:
		for i := range k {
			copy(dst[i*panelColumns:], src[i*n+column:][:columns])
		}
	}
}

// MatMul splits C by panels when there are few rows, else by blocks of rows.
func (b *avx2) MatMul(c, a []float32, transA bool, m int, w *kernel.Packed, acc bool) {
	k, n := w.K, w.N
	c, a = c[:m*n], a[:m*k]
	if m == 0 || n == 0 {
		return
	}
	if k == 0 {
		if !acc {
			clear(c)
		}
		return
	}
	panels := (n + panelColumns - 1) / panelColumns
	if b.threads == 1 || m*k*n < smallWork {
		b.block(0, c, a, transA, m, w, acc, 0, m, 0, panels)
		return
	}
	if !transA && m <= rowBlock && panels >= 2*b.threads {
		size, pieces := b.split(panels, 1, (panels+2*b.threads-1)/(2*b.threads))
		b.each(pieces, func(worker, piece int) {
			b.block(worker, c, a, transA, m, w, acc, 0, m, piece*size, min(panels, (piece+1)*size))
		})
		return
	}
	size, pieces := b.split(m, tileRows, rowBlock)
	b.each(pieces, func(worker, piece int) {
		b.block(worker, c, a, transA, m, w, acc, piece*size, min(m, (piece+1)*size), 0, panels)
	})
}

// block computes rows [i0,i1) of panels [p0,p1).
func (b *avx2) block(worker int, c, a []float32, transA bool, m int, w *kernel.Packed, acc bool, i0, i1, p0, p1 int) {
	k, n := w.K, w.N
	s := &b.scratch[worker]
	for first := i0; first < i1; first += rowBlock {
		rows := min(rowBlock, i1-first)
		for k0 := 0; k0 < k; k0 += innerBlock {
			kc := min(innerBlock, k-k0)
			t := tiles{rows: rows, k: kc, bs: 4 * panelColumns, ps: 4 * panelColumns * k, ldc: 4 * n}
			if acc || k0 > 0 {
				t.acc = 1
			}
			if transA {
				s.a = grow(s.a, (rows+tileRows-1)/tileRows*tileSize(kc))
				packTiles(s.a, a[k0*m+first:], m, rows, kc)
				t.a, t.lda, t.as, t.at = &s.a[0], 4, 4*tileRows, 4*tileSize(kc)
			} else {
				t.a, t.lda, t.as, t.at = &a[first*k+k0], 4*k, 4, 4*tileRows*k
			}
			full := min(p1, n/panelColumns)
			if full > p0 {
				t.panels = full - p0
				t.b = &w.Data[(p0*k+k0)*panelColumns]
				t.c = &c[first*n+p0*panelColumns]
				t.run()
			}
			if full < p1 {
				b.partial(s, t, c[first*n+full*panelColumns:], n, &w.Data[(full*k+k0)*panelColumns])
			}
		}
	}
}

// partial computes the last panel, of fewer than 16 columns, aside.
func (b *avx2) partial(s *scratch, t tiles, c []float32, n int, w *float32) {
	columns := n % panelColumns
	s.c = grow(s.c, t.rows*panelColumns)
	if t.acc != 0 {
		for i := range t.rows {
			copy(s.c[i*panelColumns:], c[i*n:][:columns])
		}
	}
	t.panels, t.b, t.c, t.ldc = 1, w, &s.c[0], 4*panelColumns
	t.run()
	for i := range t.rows {
		copy(c[i*n:][:columns], s.c[i*panelColumns:])
	}
}

// packTiles copies columns of a (kc rows of stride m) into tiles [kc][6] that
// stand tileSize(kc) apart.
func packTiles(dst, a []float32, m, rows, kc int) {
	size := tileSize(kc)
	// The assembly reads two elements past a tile: not past the end of a.
	whole := min(rows/tileRows, max(0, (len(a)-(kc-1)*m-2)/tileRows))
	copyTiles(&dst[0], &a[0], whole, kc, 4*m, 4*size)
	for t := whole; t*tileRows < rows; t++ {
		n := min(tileRows, rows-t*tileRows)
		for k := range kc {
			copy(dst[t*size+k*tileRows:], a[k*m+t*tileRows:][:n])
		}
	}
}

// tileSize is the room of a packed tile, two elements more than it holds.
func tileSize(kc int) int { return tileRows*kc + 2 }

// tiles is a product of any number of rows with whole panels of 16 columns.
// Strides are in bytes: see gemm of the generator.
type tiles struct {
	rows, panels, k int
	a               *float32
	lda, as, at     int
	b               *float32
	bs, ps          int
	c               *float32
	ldc, acc        int
}

// run computes panel by panel all tiles of six rows, then the rows left, with
// as many panels at once as keep the multipliers busy.
func (t *tiles) run() {
	if t.k == 0 {
		return
	}
	full := t.rows / tileRows
	if full > 0 {
		for p := range t.panels {
			gemm6x1(full, t.k, t.a, t.lda, t.as, t.at, offset(t.b, p*t.ps/4), t.bs, t.ps, offset(t.c, p*panelColumns), t.ldc, t.acc)
		}
	}
	left := t.rows - full*tileRows
	if left == 0 {
		return
	}
	a, c := offset(t.a, full*t.at/4), offset(t.c, full*tileRows*t.ldc/4)
	for p := 0; p < t.panels; {
		w, out := offset(t.b, p*t.ps/4), offset(c, p*panelColumns)
		rest := t.panels - p
		switch {
		case left == 1 && rest >= 4:
			gemm1x4(1, t.k, a, t.lda, t.as, t.at, w, t.bs, t.ps, out, t.ldc, t.acc)
			p += 4
		case left == 1 && rest >= 2:
			gemm1x2(1, t.k, a, t.lda, t.as, t.at, w, t.bs, t.ps, out, t.ldc, t.acc)
			p += 2
		case left == 1:
			gemm1x1(1, t.k, a, t.lda, t.as, t.at, w, t.bs, t.ps, out, t.ldc, t.acc)
			p++
		case left == 2 && rest >= 2:
			gemm2x2(1, t.k, a, t.lda, t.as, t.at, w, t.bs, t.ps, out, t.ldc, t.acc)
			p += 2
		case left == 2:
			gemm2x1(1, t.k, a, t.lda, t.as, t.at, w, t.bs, t.ps, out, t.ldc, t.acc)
			p++
		case left == 3 && rest >= 2:
			gemm3x2(1, t.k, a, t.lda, t.as, t.at, w, t.bs, t.ps, out, t.ldc, t.acc)
			p += 2
		case left == 3:
			gemm3x1(1, t.k, a, t.lda, t.as, t.at, w, t.bs, t.ps, out, t.ldc, t.acc)
			p++
		case left == 4:
			gemm4x1(1, t.k, a, t.lda, t.as, t.at, w, t.bs, t.ps, out, t.ldc, t.acc)
			p++
		default:
			gemm5x1(1, t.k, a, t.lda, t.as, t.at, w, t.bs, t.ps, out, t.ldc, t.acc)
			p++
		}
	}
}
