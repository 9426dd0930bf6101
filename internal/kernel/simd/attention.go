//go:build amd64 && !noasm

package simd

// Attention on the tiles of the matrix products. What all rows of a tile see is
// one product; the keys that only its later rows see (or, for the gradients of
// keys and values, the rows that see only its earlier keys) follow row by row,
// since a masked zero is not the same as no term (0*Inf).

import "github.com/odyssey-rl/odyssey/internal/kernel"

const (
	pageKeys = kernel.PageKeys
	// queryBlock and gradientBlock are the query rows whose scores are held at
	// once, whole tiles.
	queryBlock    = 4 * tileRows
	gradientBlock = 8 * tileRows
)

// attentionTask is a block of query rows [from,to) of a sequence, for the heads
// of one key-value head; in the backward operation it is all rows.
type attentionTask struct {
	seq, kv, from, to int
}

// StoreKV runs by sequence.
func (b *avx2) StoreKV(k, v []float32, seqs []kernel.Sequence, sh kernel.AttentionShape) {
	rows := 0
	for i := range seqs {
		rows += seqs[i].N
	}
	if rows*sh.KVHeads*sh.HeadDim < elementPiece || len(seqs) < 2 {
		b.ref.StoreKV(k, v, seqs, sh)
		return
	}
	size := (len(seqs) + 8*b.threads - 1) / (8 * b.threads)
	b.each((len(seqs)+size-1)/size, func(_, piece int) {
		b.ref.StoreKV(k, v, seqs[piece*size:min(len(seqs), (piece+1)*size)], sh)
	})
}

// Attention runs by block of query rows and key-value head.
func (b *avx2) Attention(out, q []float32, seqs []kernel.Sequence, sh kernel.AttentionShape, stats []float32) {
	if sh.HeadDim%panelColumns != 0 {
		b.ref.Attention(out, q, seqs, sh, stats)
		return
	}
	tasks := b.tasks[:0]
	for i := range seqs {
		for from := 0; from < seqs[i].N; from += queryBlock {
			for kv := range sh.KVHeads {
				tasks = append(tasks, attentionTask{i, kv, from, min(seqs[i].N, from+queryBlock)})
			}
		}
	}
	b.tasks = tasks
	b.each(len(tasks), func(worker, piece int) {
		t := tasks[piece]
		b.scratch[worker].attend(out, q, &seqs[t.seq], sh, t, stats)
	})
}

func (s *scratch) attend(out, q []float32, seq *kernel.Sequence, sh kernel.AttentionShape, t attentionTask, stats []float32) {
	hd, group := sh.HeadDim, sh.Heads/sh.KVHeads
	row := seq.Row + t.from
	r := queryRows{seq: seq, kv: t.kv, hd: hd, scale: sh.Scale, visible: seq.Pos + t.from + 1}
	if t.to-t.from == 1 { // the heads of the group are the rows
		r.rows, r.stride, r.later = group, hd, 0
		r.statStride = 2
		s.attendRows(&r, out, q, (row*sh.Heads+t.kv*group)*hd, stats, (row*sh.Heads+t.kv*group)*2)
		return
	}
	r.rows, r.stride, r.later = t.to-t.from, sh.Heads*hd, 1
	r.statStride = 2 * sh.Heads
	for head := t.kv * group; head < (t.kv+1)*group; head++ {
		s.attendRows(&r, out, q, (row*sh.Heads+head)*hd, stats, (row*sh.Heads+head)*2)
	}
}

// queryRows are rows of one head, or heads of one row. Row r sees
// visible+r*later keys.
type queryRows struct {
	seq                   *kernel.Sequence
	kv, hd                int
	scale                 float32
	rows, stride, visible int
	later                 int
	statStride            int
}

func (s *scratch) attendRows(r *queryRows, out, q []float32, at int, stats []float32, statAt int) {
	last := r.visible + (r.rows-1)*r.later
	pages := (last + pageKeys - 1) / pageKeys
	width := pages * pageKeys
	s.p = grow(s.p, r.rows*width)
	for j := range pages {
		// Rows before skip see nothing of this page.
		skip := 0
		if r.later == 1 && j*pageKeys >= r.visible {
			skip = (j*pageKeys - r.visible + 1) / tileRows * tileRows
		}
		scores := tiles{
			rows: r.rows - skip, panels: pageKeys / panelColumns, k: r.hd,
			a: &q[at+skip*r.stride], lda: 4 * r.stride, as: 4, at: 4 * tileRows * r.stride,
			b: &r.seq.Pages[j].K[r.kv*r.hd*pageKeys], bs: 4 * pageKeys, ps: 4 * panelColumns,
			c: &s.p[skip*width+j*pageKeys], ldc: 4 * width,
		}
		scores.run()
	}
	for i := range r.rows {
		softmax(&s.p[i*width], r.visible+i*r.later, r.scale, &s.stats)
		if stats != nil {
			copy(stats[statAt+i*r.statStride:][:2], s.stats[:])
		}
	}
	if r.later == 0 {
		s.weigh(r, &out[at], 0, r.rows, width, 0, r.visible)
		return
	}
	whole := r.visible / pageKeys * pageKeys // pages that all rows see in full
	s.weigh(r, &out[at], 0, r.rows, width, 0, whole)
	for first := 0; first < r.rows; first += tileRows {
		rows, common := min(tileRows, r.rows-first), r.visible+first
		result := &out[at+first*r.stride]
		s.weigh(r, result, first, rows, width, whole, common)
		if slot := common % pageKeys; rows == tileRows && slot+tileRows-1 <= pageKeys {
			value := &r.seq.Pages[common/pageKeys].V[(r.kv*pageKeys+slot)*r.hd]
			lowerTriangle(r.hd/panelColumns, &s.p[first*width+common], 4*width, 4, value, 4*r.hd, result, 4*r.stride)
			continue
		}
		for i := 1; i < rows; i++ {
			s.weigh(r, &out[at+(first+i)*r.stride], first+i, 1, width, common, common+i)
		}
	}
}

// weigh continues the chains of out over keys [from,to).
func (s *scratch) weigh(r *queryRows, out *float32, first, rows, width, from, to int) {
	for from < to {
		j, slot := from/pageKeys, from%pageKeys
		n := min(pageKeys-slot, to-from)
		values := tiles{
			rows: rows, panels: r.hd / panelColumns, k: n,
			a: &s.p[first*width+from], lda: 4 * width, as: 4, at: 4 * tileRows * width,
			b: &r.seq.Pages[j].V[(r.kv*pageKeys+slot)*r.hd], bs: 4 * r.hd, ps: 4 * panelColumns,
			c: out, ldc: 4 * r.stride, acc: from,
		}
		values.run()
		from += n
	}
}

// AttentionBackward runs by sequence and key-value head.
func (b *avx2) AttentionBackward(dq, dk, dv, dout, out, q, k, v, stats []float32, seqs []kernel.Sequence, sh kernel.AttentionShape) {
	if sh.HeadDim%panelColumns != 0 {
		b.ref.AttentionBackward(dq, dk, dv, dout, out, q, k, v, stats, seqs, sh)
		return
	}
	b.each(len(seqs)*sh.KVHeads, func(worker, piece int) {
		g := attentionGradient{scratch: &b.scratch[worker], sh: sh, hd: sh.HeadDim, seq: &seqs[piece/sh.KVHeads], kv: piece % sh.KVHeads,
			dq: dq, dk: dk, dv: dv, dout: dout, out: out, q: q, k: k, v: v, stats: stats}
		g.run()
	})
}

// attentionGradient is the work of one sequence and key-value head.
type attentionGradient struct {
	*scratch
	sh     kernel.AttentionShape
	hd, kv int
	seq    *kernel.Sequence

	dq, dk, dv, dout, out, q, k, v, stats []float32
}

// key gives the index of key or value row j.
func (g *attentionGradient) key(j int) int { return ((g.seq.Row+j)*g.sh.KVHeads + g.kv) * g.hd }

// query gives the index of query row i of a head.
func (g *attentionGradient) query(i, head int) int { return ((g.seq.Row+i)*g.sh.Heads + head) * g.hd }

func (g *attentionGradient) run() {
	n, hd := g.seq.N, g.hd
	if n == 0 {
		return
	}
	for j := range n {
		clear(g.dk[g.key(j):][:hd])
		clear(g.dv[g.key(j):][:hd])
	}
	panels := (n + panelColumns - 1) / panelColumns
	g.kt, g.vt = grow(g.kt, panels*panelColumns*hd), grow(g.vt, panels*panelColumns*hd)
	g.panelsOf(g.kt, g.k)
	g.panelsOf(g.vt, g.v)
	group := g.sh.Heads / g.sh.KVHeads
	for head := g.kv * group; head < (g.kv+1)*group; head++ {
		for from := 0; from < n; from += gradientBlock {
			g.block(head, from, min(n, from+gradientBlock))
		}
	}
}

// panelsOf lays rows out as panels of 16 columns [hd][16], zero beyond the end.
func (g *attentionGradient) panelsOf(dst, rows []float32) {
	n, hd := g.seq.N, g.hd
	if n%panelColumns != 0 {
		clear(dst[n/panelColumns*panelColumns*hd:])
	}
	for j := range n {
		panel := dst[j/panelColumns*panelColumns*hd+j%panelColumns:]
		for i, x := range rows[g.key(j):][:hd] {
			panel[i*panelColumns] = x
		}
	}
}

// block adds what query rows [from,to) of a head give.
func (g *attentionGradient) block(head, from, to int) {
	hd, rows := g.hd, to-from
	queryStride, keyStride := g.sh.Heads*hd, g.sh.KVHeads*hd
	panels := (to + panelColumns - 1) / panelColumns
	width := panels * panelColumns
	g.p, g.dp = grow(g.p, rows*width), grow(g.dp, rows*width)

	scores := tiles{rows: rows, panels: panels, k: hd,
		a: &g.q[g.query(from, head)], lda: 4 * queryStride, as: 4, at: 4 * tileRows * queryStride,
		b: &g.kt[0], bs: 4 * panelColumns, ps: 4 * panelColumns * hd,
		c: &g.p[0], ldc: 4 * width}
	scores.run()
	scores.a, scores.b, scores.c = &g.dout[g.query(from, head)], &g.vt[0], &g.dp[0]
	scores.run()
	for i := range rows {
		at := g.query(from+i, head)
		delta := dot(g.dout[at:at+hd], g.out[at:at+hd])
		m, inv := g.stats[at/hd*2], g.stats[at/hd*2+1]
		probability(&g.p[i*width], &g.dp[i*width], (from+i)/vector+1, g.sh.Scale, m, inv, delta)
	}

	for first := 0; first < rows; first += tileRows {
		common := from + first + 1
		t := tiles{rows: min(tileRows, rows-first), panels: hd / panelColumns, k: common,
			a: &g.dp[first*width], lda: 4 * width, as: 4,
			b: &g.k[g.key(0)], bs: 4 * keyStride, ps: 4 * panelColumns,
			c: &g.dq[g.query(from+first, head)], ldc: 4 * queryStride}
		t.run()
		if t.rows == tileRows {
			lowerTriangle(t.panels, &g.dp[first*width+common], 4*width, 4, &g.k[g.key(common)], t.bs, t.c, t.ldc)
			continue
		}
		for i := 1; i < min(tileRows, rows-first); i++ {
			t.rows, t.k, t.acc = 1, i, 1
			t.a, t.b, t.c = &g.dp[(first+i)*width+common], &g.k[g.key(common)], &g.dq[g.query(from+first+i, head)]
			t.run()
		}
	}

	// Whole tiles of keys that every row of the block sees.
	seen := (from + 1) / tileRows * tileRows
	g.keys(head, from, to, from, 0, seen, width)
	for j := seen; j < to; j += tileRows {
		n := min(tileRows, to-j)
		common := max(from, j+n-1)
		if n == tileRows && j >= from {
			g.triangle(head, from, j, width)
			g.keys(head, common, to, from, j, j+n, width)
			continue
		}
		for c := range n {
			if start := max(from, j+c); start < common {
				g.keys(head, start, common, from, j+c, j+c+1, width)
			}
		}
		g.keys(head, common, to, from, j, j+n, width)
	}
}

// keys continues the chains of dk and dv of keys [j0,j1) over query rows
// [i0,i1); from is the first row of the block.
func (g *attentionGradient) keys(head, i0, i1, from, j0, j1, width int) {
	if j0 == j1 || i0 == i1 {
		return
	}
	t := tiles{rows: j1 - j0, panels: g.hd / panelColumns, k: i1 - i0,
		a: &g.dp[(i0-from)*width+j0], lda: 4, as: 4 * width, at: 4 * tileRows,
		b: &g.q[g.query(i0, head)], bs: 4 * g.sh.Heads * g.hd, ps: 4 * panelColumns,
		c: &g.dk[g.key(j0)], ldc: 4 * g.sh.KVHeads * g.hd, acc: 1}
	t.run()
	t.a, t.b, t.c = &g.p[(i0-from)*width+j0], &g.dout[g.query(i0, head)], &g.dv[g.key(j0)]
	t.run()
}

// triangle continues the chains of dk and dv of the first five keys of the tile
// at j over the query rows j..j+4, each over those that see it.
func (g *attentionGradient) triangle(head, from, j, width int) {
	panels, at := g.hd/panelColumns, (j-from)*width+j
	bs, ldc := 4*g.sh.Heads*g.hd, 4*g.sh.KVHeads*g.hd
	upperTriangle(panels, &g.dp[at], 4, 4*width, &g.q[g.query(j, head)], bs, &g.dk[g.key(j)], ldc)
	upperTriangle(panels, &g.p[at], 4, 4*width, &g.dout[g.query(j, head)], bs, &g.dv[g.key(j)], ldc)
}

// dot applies the row rule with lane chains fma(x, y, lane).
func dot(x, y []float32) float32 {
	if len(x)%lanes == 0 {
		return rowDot(&x[0], &y[0], len(x)/lanes)
	}
	var sums [lanes]float32
	for i, v := range x {
		sums[i%lanes] = kernel.FMA32(v, y[i], sums[i%lanes])
	}
	return butterfly(&sums)
}
