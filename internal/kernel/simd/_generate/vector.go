package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var constants = map[string]Mem{}

// constant returns a vector of eight copies of x in read-only memory.
func constant(x float64) Mem {
	return constantBits(math.Float32bits(float32(x)))
}

func constantBits(bits uint32) Mem {
	name := fmt.Sprintf("c%08x", bits)
	if m, ok := constants[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i := range 8 {
		DATA(4*i, U32(bits))
	}
	constants[name] = m
	return m
}

var laneIndex Mem

// lanes returns the vector 8v, 8v+1, ... 8v+7 of int32.
func lanes(v int) Mem {
	if laneIndex.Symbol.Name == "" {
		laneIndex = GLOBL("laneIndex", RODATA|NOPTR)
		for i := range 32 {
			DATA(4*i, U32(uint32(i)))
		}
	}
	return laneIndex.Offset(32 * v)
}

func zeroed() reg.VecVirtual {
	x := YMM()
	VXORPS(x, x, x)
	return x
}

// broadcast loads a float32 parameter into all lanes.
func broadcast(name string) reg.VecVirtual {
	x := YMM()
	addr, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(addr.Addr, x)
	return x
}

// exp emits kernel.Exp of each lane of x, operation by operation; the
// constants are those of package kernel.
func exp(x reg.VecVirtual) reg.VecVirtual {
	t, n, r, p, square, mask, top := YMM(), YMM(), YMM(), YMM(), YMM(), YMM(), YMM()
	VMOVUPS(constant(12582912.0), t)
	VFMADD231PS(constant(1.4426950408889634), x, t)
	VSUBPS(constant(12582912.0), t, n)
	VMOVAPS(x, r)
	VFMADD231PS(constant(-0.693359375), n, r)
	VFMADD231PS(constant(0.000212194440054691), n, r)
	VMOVUPS(constant(0.0013814174161), p)
	VFMADD213PS(constant(0.00836892179332), r, p)
	VFMADD213PS(constant(0.0416684079729), r, p)
	VFMADD213PS(constant(0.166665189386), r, p)
	VFMADD213PS(constant(0.499999933335), r, p)
	VMULPS(r, r, square)
	VFMADD213PS(r, square, p)
	VADDPS(constant(1), p, p)
	VPSLLD(Imm(23), t, t)
	VPADDD(t, p, p)
	VCMPPS(Imm(1), constant(-87.3), x, mask) // x < low
	VANDNPS(p, mask, p)
	VCMPPS(Imm(6), constant(88.72283172607422), x, mask) // not x <= high
	VADDPS(constant(math.Inf(1)), x, top)
	VBLENDVPS(mask, top, p, p)
	return p
}

// sigmoid emits kernel.Sigmoid.
func sigmoid(x reg.VecVirtual) reg.VecVirtual {
	minus := YMM()
	VXORPS(constantBits(0x80000000), x, minus)
	e := exp(minus)
	VADDPS(constant(1), e, e)
	s := YMM()
	VMOVUPS(constant(1), s)
	VDIVPS(e, s, s)
	return s
}

// butterfly adds the 32 lanes of four vectors by the row rule; lane 0 of the
// result is the sum.
func butterfly(s [4]reg.VecVirtual) reg.VecVirtual {
	VADDPS(s[2], s[0], s[0])
	VADDPS(s[3], s[1], s[1])
	VADDPS(s[1], s[0], s[0])
	t := YMM()
	VEXTRACTF128(Imm(1), s[0], t.AsX())
	VADDPS(t.AsX(), s[0].AsX(), s[0].AsX())
	VMOVHLPS(s[0].AsX(), s[0].AsX(), t.AsX())
	VADDPS(t.AsX(), s[0].AsX(), s[0].AsX())
	VMOVSHDUP(s[0].AsX(), t.AsX())
	VADDSS(t.AsX(), s[0].AsX(), s[0].AsX())
	return s[0]
}

// top takes the maximum of the 32 lanes of four vectors, +0 for a zero, into
// all lanes of the result. No lane is NaN.
func top(m [4]reg.VecVirtual) reg.VecVirtual {
	VMAXPS(m[1], m[0], m[0])
	VMAXPS(m[3], m[2], m[2])
	VMAXPS(m[2], m[0], m[0])
	t := YMM()
	VPERM2F128(Imm(1), m[0], m[0], t)
	VMAXPS(t, m[0], m[0])
	VPERMILPS(Imm(0x4e), m[0], t)
	VMAXPS(t, m[0], m[0])
	VPERMILPS(Imm(0xb1), m[0], t)
	VMAXPS(t, m[0], m[0])
	z := zeroed()
	VADDPS(z, m[0], m[0])
	return m[0]
}

func four(f func() reg.VecVirtual) (v [4]reg.VecVirtual) {
	for i := range v {
		v[i] = f()
	}
	return v
}

func minusInf() reg.VecVirtual {
	x := YMM()
	VMOVUPS(constant(math.Inf(-1)), x)
	return x
}

func at(p reg.Register, v int) Mem { return Mem{Base: p, Disp: 32 * v} }

// loop emits body n times; n is consumed and may be zero.
func loop(name string, n reg.Register, body func()) {
	TESTQ(n, n)
	JZ(LabelRef(name + "End"))
	Label(name)
	body()
	DECQ(n)
	JNZ(LabelRef(name))
	Label(name + "End")
}

func swiGLU() {
	TEXT("swiGLU", NOSPLIT, "func(y, gate, up *float32, vectors int)")
	Doc("swiGLU computes vectors of eight.")
	y, gate, up := Load(Param("y"), GP64()), Load(Param("gate"), GP64()), Load(Param("up"), GP64())
	n := Load(Param("vectors"), GP64())
	loop("loop", n, func() {
		g := YMM()
		VMOVUPS(at(gate, 0), g)
		s := sigmoid(g)
		VMULPS(s, g, g)
		VMULPS(at(up, 0), g, g)
		VMOVUPS(g, at(y, 0))
		for _, p := range []reg.Register{y, gate, up} {
			ADDQ(Imm(32), p)
		}
	})
	VZEROUPPER()
	RET()
}

func swiGLUBackward() {
	TEXT("swiGLUBackward", NOSPLIT, "func(dgate, dup, dy, gate, up *float32, vectors int)")
	Doc("swiGLUBackward computes vectors of eight.")
	dgate, dup, dy := Load(Param("dgate"), GP64()), Load(Param("dup"), GP64()), Load(Param("dy"), GP64())
	gate, up := Load(Param("gate"), GP64()), Load(Param("up"), GP64())
	n := Load(Param("vectors"), GP64())
	loop("loop", n, func() {
		g, d, a, du, rest := YMM(), YMM(), YMM(), YMM(), YMM()
		VMOVUPS(at(gate, 0), g)
		s := sigmoid(g)
		VMULPS(s, g, a)
		VMOVUPS(at(dy, 0), d)
		VMULPS(at(up, 0), d, du)
		VMULPS(a, d, d)
		VMOVUPS(constant(1), rest)
		VSUBPS(s, rest, rest)
		VFMADD213PS(s, rest, a) // a = a*rest + s
		VMULPS(a, du, du)
		VMOVUPS(du, at(dgate, 0))
		VMOVUPS(d, at(dup, 0))
		for _, p := range []reg.Register{dgate, dup, dy, gate, up} {
			ADDQ(Imm(32), p)
		}
	})
	VZEROUPPER()
	RET()
}

func add() {
	TEXT("add", NOSPLIT, "func(y, x *float32, vectors int)")
	Doc("add adds vectors of eight.")
	y, x := Load(Param("y"), GP64()), Load(Param("x"), GP64())
	n := Load(Param("vectors"), GP64())
	loop("loop", n, func() {
		v := YMM()
		VMOVUPS(at(y, 0), v)
		VADDPS(at(x, 0), v, v)
		VMOVUPS(v, at(y, 0))
		ADDQ(Imm(32), y)
		ADDQ(Imm(32), x)
	})
	VZEROUPPER()
	RET()
}

func sumSquares() {
	TEXT("sumSquares", NOSPLIT, "func(sums *[32]float32, x *float32, blocks int)")
	Doc("sumSquares continues 32 lane chains over blocks of 32.")
	sums, x := Load(Param("sums"), GP64()), Load(Param("x"), GP64())
	n := Load(Param("blocks"), GP64())
	s := four(YMM)
	for v := range s {
		VMOVUPS(at(sums, v), s[v])
	}
	loop("loop", n, func() {
		for v := range s {
			y := YMM()
			VMOVUPS(at(x, v), y)
			VFMADD231PS(y, y, s[v])
		}
		ADDQ(Imm(128), x)
	})
	for v := range s {
		VMOVUPS(s[v], at(sums, v))
	}
	VZEROUPPER()
	RET()
}

func adamW() {
	TEXT("adamW", NOSPLIT, "func(w, grad, m, v *float32, vectors int, p *[10]float32)")
	Doc("adamW updates vectors of eight; p is {GradScale, Beta1, 1-Beta1, Beta2, 1-Beta2, C1, C2, Eps, Decay, -LR}.")
	w, grad, m, v := Load(Param("w"), GP64()), Load(Param("grad"), GP64()), Load(Param("m"), GP64()), Load(Param("v"), GP64())
	n, p := Load(Param("vectors"), GP64()), Load(Param("p"), GP64())
	var c [10]reg.VecVirtual
	for i := range c {
		c[i] = YMM()
		VBROADCASTSS(Mem{Base: p, Disp: 4 * i}, c[i])
	}
	loop("loop", n, func() {
		g, x, mean, variance := YMM(), YMM(), YMM(), YMM()
		VMULPS(at(grad, 0), c[0], g)
		VMULPS(g, c[2], mean) // (1-b1)*g
		VMOVUPS(at(m, 0), x)
		VFMADD231PS(x, c[1], mean)
		VMOVUPS(mean, at(m, 0))
		VMULPS(g, c[4], variance)
		VMULPS(g, variance, variance)
		VMOVUPS(at(v, 0), x)
		VFMADD231PS(x, c[3], variance)
		VMOVUPS(variance, at(v, 0))
		VDIVPS(c[5], mean, mean)
		VDIVPS(c[6], variance, variance)
		VSQRTPS(variance, variance)
		VADDPS(c[7], variance, variance)
		VDIVPS(variance, mean, mean)
		VMOVUPS(at(w, 0), x)
		VFMADD231PS(x, c[8], mean)
		VFMADD231PS(mean, c[9], x)
		VMOVUPS(x, at(w, 0))
		for _, q := range []reg.Register{w, grad, m, v} {
			ADDQ(Imm(32), q)
		}
	})
	VZEROUPPER()
	RET()
}
