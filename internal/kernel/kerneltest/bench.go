package kerneltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/odyssey-rl/odyssey/internal/kernel"
)

// Bench measures a backend on the shapes of the small models. peak returns the
// multiply-add rate of one thread in GFLOP/s. Rates are those of the fastest
// run (of each operation, for a whole pass), so that a busy machine disturbs
// them little; ns/op is the mean as always.
func Bench(b *testing.B, open func(threads int) kernel.Backend, peak func() float64) {
	for _, threads := range []int{1, 2} {
		backend := open(threads)
		for _, s := range []struct{ m, k, n int }{
			{1, 128, 256}, {8, 128, 256}, {16, 128, 384}, {64, 128, 256}, {64, 128, 1024}, {64, 384, 128},
			{512, 128, 256}, {2000, 128, 128}, {2000, 128, 384}, {2000, 384, 128}, {2000, 128, 1024}, {2000, 1024, 128}, {2000, 192, 512}, {2000, 1024, 1024},
		} {
			b.Run(fmt.Sprintf("MatMul/threads=%d/%dx%dx%d", threads, s.m, s.k, s.n), func(b *testing.B) {
				benchMatMul(b, backend, false, s.m, s.k, s.n, peak)
			})
		}
		for _, s := range []struct{ m, k, n int }{{128, 2000, 128}, {384, 2000, 128}, {128, 2000, 384}, {1024, 2000, 128}} {
			b.Run(fmt.Sprintf("MatMul/threads=%d/transposed/%dx%dx%d", threads, s.m, s.k, s.n), func(b *testing.B) {
				benchMatMul(b, backend, true, s.m, s.k, s.n, peak)
			})
		}
		b.Run(fmt.Sprintf("Attention/threads=%d", threads), func(b *testing.B) { benchAttention(b, backend) })
		b.Run(fmt.Sprintf("Step/threads=%d", threads), func(b *testing.B) { benchStep(b, backend) })
		b.Run(fmt.Sprintf("Decode/threads=%d", threads), func(b *testing.B) { benchDecode(b, backend) })
	}
}

func benchMatMul(b *testing.B, backend kernel.Backend, transA bool, m, k, n int, peak func() float64) {
	a := newArena(1, false)
	x, w, c := a.values(m*k), a.values(k*n), a.zeros(m*n)
	var packed kernel.Packed
	backend.Pack(&packed, w, k, n, false)
	top := peak() * float64(backend.Threads())
	best := time.Duration(1 << 62)
	for b.Loop() {
		start := time.Now()
		backend.MatMul(c, x, transA, m, &packed, false)
		best = min(best, time.Since(start))
	}
	rate := 2 * float64(m*k*n) / float64(best)
	b.ReportMetric(rate, "GFLOP/s")
	b.ReportMetric(100*rate/top, "%peak")
}

// clock keeps the shortest time of each call of a pass, by its place in it.
type clock struct {
	next  int
	names []string
	best  []time.Duration
}

func (c *clock) run(name string, f func()) {
	start := time.Now()
	f()
	took := time.Since(start)
	if c.next == len(c.names) {
		c.names, c.best = append(c.names, name), append(c.best, took)
	}
	c.best[c.next] = min(c.best[c.next], took)
	c.next++
}

// report gives the rate of passes over rows tokens and the share of each kind
// of operation, in the order of first use.
func (c *clock) report(b *testing.B, rows int) {
	total, order, kinds := time.Duration(0), []string(nil), map[string]time.Duration{}
	for i, name := range c.names {
		if kinds[name] == 0 {
			order = append(order, name)
		}
		kinds[name] += c.best[i]
		total += c.best[i]
	}
	text := ""
	for _, name := range order {
		text += fmt.Sprintf("\n%-16s %7.3f ms %5.1f%%", name, kinds[name].Seconds()*1e3, 100*float64(kinds[name])/float64(total))
	}
	b.Log(text)
	b.ReportMetric(float64(rows)/total.Seconds(), "tokens/s")
}

// pico is the shape whose operations the step bench runs in the order of a
// model's forward and backward pass.
type pico struct {
	kernel.Backend
	clock
	rows               int
	seqs               []kernel.Sequence
	pos                []int32
	cos, sin           []float32
	weights            map[string]*kernel.Packed
	buffers, gradients map[string][]float32
}

const (
	picoWidth, picoLayers, picoVocab, picoFF = 128, 4, 1024, 384
)

var picoShape = kernel.AttentionShape{Heads: 4, KVHeads: 2, HeadDim: 32, Scale: 0.17677669}

func newPico(backend kernel.Backend, lengths []int, at int) *pico {
	p := &pico{Backend: backend, weights: map[string]*kernel.Packed{}, buffers: map[string][]float32{}, gradients: map[string][]float32{}}
	a := newArena(3, false)
	longest := 0
	for _, n := range lengths {
		s := kernel.Sequence{Row: p.rows, N: n, Pos: at}
		for len(s.Pages)*kernel.PageKeys < at+n {
			s.Pages = append(s.Pages, a.page(picoShape))
		}
		for i := range n {
			p.pos = append(p.pos, int32(at+i))
		}
		p.seqs = append(p.seqs, s)
		p.rows += n
		longest = max(longest, at+n)
	}
	p.cos, p.sin = kernel.RopeTables(longest, picoShape.HeadDim, 1e4)
	for name, s := range map[string][2]int{"q": {128, 128}, "k": {128, 64}, "v": {128, 64}, "o": {128, 128}, "gate": {128, 384}, "up": {128, 384}, "down": {384, 128}, "head": {128, 1024}} {
		w := a.values(s[0] * s[1])
		for i := range w {
			w[i] *= 0.05
		}
		p.weights[name], p.weights[name+"T"] = &kernel.Packed{}, &kernel.Packed{}
		backend.Pack(p.weights[name], w, s[0], s[1], false)
		backend.Pack(p.weights[name+"T"], w, s[1], s[0], true)
		p.gradients[name] = a.zeros(s[0] * s[1])
	}
	for name, n := range map[string]int{"h": 128, "x": 128, "q": 128, "k": 64, "v": 64, "qn": 128, "kn": 64, "out": 128, "o": 128, "gate": 384, "up": 384, "act": 384, "logits": 1024,
		"dh": 128, "dx": 128, "dq": 128, "dk": 64, "dv": 64, "dout": 128, "dgate": 384, "dup": 384, "dact": 384} {
		p.buffers[name] = a.zeros(p.rows * n)
	}
	p.buffers["h"] = a.values(p.rows * 128)
	p.buffers["w"] = a.values(128)
	p.buffers["dw"] = a.zeros(128)
	p.buffers["rstd"] = a.zeros(p.rows * 4)
	p.buffers["stats"] = a.zeros(p.rows * 8)
	p.buffers["rowwise"] = a.positives(p.rows)
	return p
}

func (p *pico) forward() {
	b := p.buffers
	mul := func(c, a, w string) {
		p.run("MatMul forward", func() { p.MatMul(b[c], b[a], false, p.rows, p.weights[w], false) })
	}
	norm := func(y, x string, rows, dim int) {
		p.run("RMSNorm", func() { p.RMSNorm(b[y], b["rstd"], b[x], b["w"], rows, dim, 1e-6) })
	}
	for range picoLayers {
		norm("x", "h", p.rows, picoWidth)
		mul("q", "x", "q")
		mul("k", "x", "k")
		mul("v", "x", "v")
		norm("qn", "q", p.rows*4, 32)
		norm("kn", "k", p.rows*2, 32)
		p.run("Rope", func() { p.Rope(b["qn"], p.rows, 4, 32, p.pos, p.cos, p.sin, false) })
		p.run("Rope", func() { p.Rope(b["kn"], p.rows, 2, 32, p.pos, p.cos, p.sin, false) })
		p.run("StoreKV", func() { p.StoreKV(b["kn"], b["v"], p.seqs, picoShape) })
		p.run("Attention", func() { p.Attention(b["out"], b["qn"], p.seqs, picoShape, b["stats"]) })
		mul("o", "out", "o")
		p.run("Add", func() { p.Add(b["h"], b["o"]) })
		norm("x", "h", p.rows, picoWidth)
		mul("gate", "x", "gate")
		mul("up", "x", "up")
		p.run("SwiGLU", func() { p.SwiGLU(b["act"], b["gate"], b["up"]) })
		mul("o", "act", "down")
		p.run("Add", func() { p.Add(b["h"], b["o"]) })
	}
	norm("x", "h", p.rows, picoWidth)
	mul("logits", "x", "head")
}

func (p *pico) backward(target []int32) {
	b := p.buffers
	var shared kernel.Packed
	pack := func(x string, n int) {
		p.run("Pack", func() { p.Pack(&shared, b[x], p.rows, n, false) })
	}
	// weight adds dy^T x to a gradient [out][in]; x is packed in shared.
	weight := func(name, dy string, out int) {
		p.run("MatMul weights", func() { p.MatMul(p.gradients[name], b[dy], true, out, &shared, true) })
	}
	input := func(dx, dy, name string, acc bool) {
		p.run("MatMul inputs", func() { p.MatMul(b[dx], b[dy], false, p.rows, p.weights[name+"T"], acc) })
	}
	norm := func(dx, dy, x string, rows, dim int, acc bool) {
		p.run("RMSNormBackward", func() { p.RMSNormBackward(b[dx], b["dw"], b[dy], b[x], b["w"], b["rstd"], rows, dim, acc) })
	}
	p.run("LogprobBackward", func() { p.LogprobBackward(b["logits"], p.rows, picoVocab, target, b["rowwise"], 1) })
	pack("x", picoWidth)
	weight("head", "logits", picoVocab)
	input("dx", "logits", "head", false)
	norm("dh", "dx", "h", p.rows, picoWidth, false)
	for range picoLayers {
		pack("act", picoFF)
		weight("down", "dh", picoWidth)
		input("dact", "dh", "down", false)
		p.run("SwiGLUBackward", func() { p.SwiGLUBackward(b["dgate"], b["dup"], b["dact"], b["gate"], b["up"]) })
		pack("x", picoWidth)
		weight("gate", "dgate", picoFF)
		weight("up", "dup", picoFF)
		input("dx", "dgate", "gate", false)
		input("dx", "dup", "up", true)
		norm("dh", "dx", "h", p.rows, picoWidth, true)
		pack("out", picoWidth)
		weight("o", "dh", picoWidth)
		input("dout", "dh", "o", false)
		p.run("AttentionBackward", func() {
			p.AttentionBackward(b["dq"], b["dk"], b["dv"], b["dout"], b["out"], b["qn"], b["kn"], b["v"], b["stats"], p.seqs, picoShape)
		})
		p.run("Rope", func() { p.Rope(b["dq"], p.rows, 4, 32, p.pos, p.cos, p.sin, true) })
		p.run("Rope", func() { p.Rope(b["dk"], p.rows, 2, 32, p.pos, p.cos, p.sin, true) })
		norm("dq", "dq", "q", p.rows*4, 32, false)
		norm("dk", "dk", "k", p.rows*2, 32, false)
		pack("x", picoWidth)
		weight("q", "dq", 128)
		weight("k", "dk", 64)
		weight("v", "dv", 64)
		input("dx", "dq", "q", false)
		input("dx", "dk", "k", true)
		input("dx", "dv", "v", true)
		norm("dh", "dx", "h", p.rows, picoWidth, true)
	}
}

// benchAttention measures both directions on one sequence of training.
func benchAttention(b *testing.B, backend kernel.Backend) {
	p := newPico(backend, []int{220}, 0)
	x := p.buffers
	for _, name := range []string{"qn", "kn", "v", "dout"} {
		copy(x[name], newArena(1, false).values(len(x[name])))
	}
	for b.Loop() {
		p.next = 0
		p.run("StoreKV", func() { p.StoreKV(x["kn"], x["v"], p.seqs, picoShape) })
		p.run("Attention", func() { p.Attention(x["out"], x["qn"], p.seqs, picoShape, x["stats"]) })
		p.run("AttentionBackward", func() {
			p.AttentionBackward(x["dq"], x["dk"], x["dv"], x["dout"], x["out"], x["qn"], x["kn"], x["v"], x["stats"], p.seqs, picoShape)
		})
	}
	p.report(b, p.rows)
}

// benchStep measures forward and backward passes over sequences of training.
func benchStep(b *testing.B, backend kernel.Backend) {
	p := newPico(backend, []int{120, 220, 390, 180, 250, 300, 200, 240}, 0)
	target := make([]int32, p.rows)
	logprob := make([]float32, p.rows)
	entropy := make([]float32, p.rows)
	input := append([]float32(nil), p.buffers["h"]...)
	for b.Loop() {
		p.next = 0
		copy(p.buffers["h"], input)
		p.forward()
		p.run("Logprob", func() { p.Logprob(logprob, entropy, p.buffers["logits"], p.rows, picoVocab, target, 1) })
		p.backward(target)
	}
	p.report(b, p.rows)
}

// benchDecode measures one token of 64 sequences at position 150.
func benchDecode(b *testing.B, backend kernel.Backend) {
	const batch = 64
	lengths := make([]int, batch)
	for i := range lengths {
		lengths[i] = 1
	}
	p := newPico(backend, lengths, 150)
	ids, logprob := make([]int32, batch), make([]float32, batch)
	for b.Loop() {
		p.next = 0
		p.forward()
		p.run("Sample", func() { p.Sample(ids, logprob, p.buffers["logits"], batch, picoVocab, p.buffers["rowwise"], 1) })
	}
	p.report(b, batch)
}
