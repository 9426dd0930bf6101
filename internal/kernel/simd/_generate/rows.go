package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// softmax emits the row of Attention: x[0:n] holds the chains of q*k and
// becomes the probabilities; the lanes up to the next multiple of 32 become
// zero. x must be that long.
func softmax() {
	TEXT("softmax", NOSPLIT, "func(x *float32, n int, scale float32, stats *[2]float32)")
	Doc("softmax turns a row of scores into probabilities.")
	x, n, stats := Load(Param("x"), GP64()), Load(Param("n"), GP64()), Load(Param("stats"), GP64())
	scale := broadcast("scale")
	p, count := GP64(), GP64()

	// Scale, mask and take the maximum.
	MOVQ(x, p)
	MOVQ(n, count)
	SHRQ(Imm(5), count)
	m := four(minusInf)
	loop("max", count, func() {
		for v := range m {
			z := YMM()
			VMULPS(at(p, v), scale, z)
			VMOVUPS(z, at(p, v))
			VMAXPS(m[v], z, m[v]) // the second source survives a NaN
		}
		ADDQ(Imm(128), p)
	})
	MOVQ(n, count)
	ANDQ(Imm(31), count)
	JZ(LabelRef("masked"))
	limit := YMM()
	VMOVQ(count, limit.AsX())
	VPBROADCASTD(limit.AsX(), limit)
	low := minusInf()
	for v := range m {
		z, mask := YMM(), YMM()
		VMULPS(at(p, v), scale, z)
		VPCMPGTD(lanes(v), limit, mask)
		VBLENDVPS(mask, z, low, z)
		VMOVUPS(z, at(p, v))
		VMAXPS(m[v], z, m[v])
	}
	Label("masked")
	highest := top(m)
	VMOVSS(highest.AsX(), Mem{Base: stats})

	// Exponentials and their sum.
	ADDQ(Imm(31), n)
	SHRQ(Imm(5), n)
	MOVQ(x, p)
	MOVQ(n, count)
	s := four(zeroed)
	loop("exp", count, func() {
		for v := range s {
			z := YMM()
			VMOVUPS(at(p, v), z)
			VSUBPS(highest, z, z)
			e := exp(z)
			VADDPS(e, s[v], s[v])
			VMOVUPS(e, at(p, v))
		}
		ADDQ(Imm(128), p)
	})
	sum := butterfly(s)
	inverse := YMM()
	VMOVSS(constant(1), inverse.AsX())
	VDIVSS(sum.AsX(), inverse.AsX(), inverse.AsX())
	VMOVSS(inverse.AsX(), Mem{Base: stats, Disp: 4})
	VBROADCASTSS(inverse.AsX(), inverse)

	loop("scale", n, func() {
		for v := range 4 {
			z := YMM()
			VMULPS(at(x, v), inverse, z)
			VMOVUPS(z, at(x, v))
		}
		ADDQ(Imm(128), x)
	})
	VZEROUPPER()
	RET()
}

// probability emits a row of AttentionBackward.
func probability() {
	TEXT("probability", NOSPLIT, "func(p, dp *float32, vectors int, scale, max, inverse, delta float32)")
	Doc("probability turns chains of q*k into probabilities and chains of dout*v into the gradient of the scores.")
	p, dp, n := Load(Param("p"), GP64()), Load(Param("dp"), GP64()), Load(Param("vectors"), GP64())
	scale, highest, inverse, delta := broadcast("scale"), broadcast("max"), broadcast("inverse"), broadcast("delta")
	loop("loop", n, func() {
		z, d := YMM(), YMM()
		VMULPS(at(p, 0), scale, z)
		VSUBPS(highest, z, z)
		e := exp(z)
		VMULPS(inverse, e, e)
		VMOVUPS(e, at(p, 0))
		VMOVUPS(at(dp, 0), d)
		VSUBPS(delta, d, d)
		VMULPS(e, d, d)
		VMULPS(scale, d, d)
		VMOVUPS(d, at(dp, 0))
		ADDQ(Imm(32), p)
		ADDQ(Imm(32), dp)
	})
	VZEROUPPER()
	RET()
}

func rowMax() {
	TEXT("rowMax", NOSPLIT, "func(x *float32, blocks int, scale float32) float32")
	Doc("rowMax returns the maximum of x*scale over blocks of 32.")
	x, n := Load(Param("x"), GP64()), Load(Param("blocks"), GP64())
	scale := broadcast("scale")
	m := four(minusInf)
	loop("loop", n, func() {
		for v := range m {
			z := YMM()
			VMULPS(at(x, v), scale, z)
			VMAXPS(m[v], z, m[v])
		}
		ADDQ(Imm(128), x)
	})
	Store(top(m).AsX(), ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func rowExp() {
	TEXT("rowExp", NOSPLIT, "func(y, x *float32, vectors int, scale, max float32)")
	Doc("rowExp sets y = exp(x*scale - max), vectors of eight.")
	y, x, n := Load(Param("y"), GP64()), Load(Param("x"), GP64()), Load(Param("vectors"), GP64())
	scale, highest := broadcast("scale"), broadcast("max")
	loop("loop", n, func() {
		z := YMM()
		VMULPS(at(x, 0), scale, z)
		VSUBPS(highest, z, z)
		VMOVUPS(exp(z), at(y, 0))
		ADDQ(Imm(32), x)
		ADDQ(Imm(32), y)
	})
	VZEROUPPER()
	RET()
}

func rowExpSum() {
	TEXT("rowExpSum", NOSPLIT, "func(sums *[32]float32, x *float32, blocks int, scale, max float32)")
	Doc("rowExpSum continues the lane sums of exp(x*scale - max) over blocks of 32.")
	sums, x, n := Load(Param("sums"), GP64()), Load(Param("x"), GP64()), Load(Param("blocks"), GP64())
	scale, highest := broadcast("scale"), broadcast("max")
	s := four(zeroed)
	loop("loop", n, func() {
		for v := range s {
			z := YMM()
			VMULPS(at(x, v), scale, z)
			VSUBPS(highest, z, z)
			VADDPS(exp(z), s[v], s[v])
		}
		ADDQ(Imm(128), x)
	})
	for v := range s {
		VMOVUPS(s[v], at(sums, v))
	}
	VZEROUPPER()
	RET()
}

func rowExpEntropy() {
	TEXT("rowExpEntropy", NOSPLIT, "func(sums, products *[32]float32, x *float32, blocks int, scale, max float32)")
	Doc("rowExpEntropy sets the lane sums of e = exp(z - max) and the lane chains of e*z, z = x*scale, over blocks of 32.")
	sums, products := Load(Param("sums"), GP64()), Load(Param("products"), GP64())
	x, n := Load(Param("x"), GP64()), Load(Param("blocks"), GP64())
	scale, highest := broadcast("scale"), broadcast("max")
	for v := range 4 {
		z := zeroed()
		VMOVUPS(z, at(sums, v))
		VMOVUPS(z, at(products, v))
	}
	loop("loop", n, func() {
		for v := range 4 {
			z, d, t := YMM(), YMM(), YMM()
			VMULPS(at(x, v), scale, z)
			VSUBPS(highest, z, d)
			e := exp(d)
			VADDPS(at(sums, v), e, t)
			VMOVUPS(t, at(sums, v))
			VMOVUPS(at(products, v), t)
			VFMADD231PS(e, z, t)
			VMOVUPS(t, at(products, v))
		}
		ADDQ(Imm(128), x)
	})
	VZEROUPPER()
	RET()
}

func rowGradient() {
	TEXT("rowGradient", NOSPLIT, "func(x *float32, vectors int, scale, max, inverse, weight float32)")
	Doc("rowGradient sets x = (0 - exp(x*scale - max)*inverse)*weight, vectors of eight.")
	x, n := Load(Param("x"), GP64()), Load(Param("vectors"), GP64())
	scale, highest, inverse, weight := broadcast("scale"), broadcast("max"), broadcast("inverse"), broadcast("weight")
	zero := zeroed()
	loop("loop", n, func() {
		z := YMM()
		VMULPS(at(x, 0), scale, z)
		VSUBPS(highest, z, z)
		e := exp(z)
		VMULPS(inverse, e, e)
		VSUBPS(e, zero, e)
		VMULPS(weight, e, e)
		VMOVUPS(e, at(x, 0))
		ADDQ(Imm(32), x)
	})
	VZEROUPPER()
	RET()
}

func rowDot() {
	TEXT("rowDot", NOSPLIT, "func(x, y *float32, blocks int) float32")
	Doc("rowDot applies the row rule with lane chains fma(x, y, lane) to blocks of 32.")
	x, y, n := Load(Param("x"), GP64()), Load(Param("y"), GP64()), Load(Param("blocks"), GP64())
	s := four(zeroed)
	loop("loop", n, func() {
		for v := range s {
			z := YMM()
			VMOVUPS(at(x, v), z)
			VFMADD231PS(at(y, v), z, s[v])
		}
		ADDQ(Imm(128), x)
		ADDQ(Imm(128), y)
	})
	Store(butterfly(s).AsX(), ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func rmsNorm() {
	TEXT("rmsNorm", NOSPLIT, "func(y, rstd, x, w *float32, rows, blocks int, dim, eps float32)")
	Doc("rmsNorm normalises rows of blocks of 32; rstd may be nil.")
	y, rstd, x, w := Load(Param("y"), GP64()), Load(Param("rstd"), GP64()), Load(Param("x"), GP64()), Load(Param("w"), GP64())
	rows, blocks := Load(Param("rows"), GP64()), Load(Param("blocks"), GP64())
	dim, eps := broadcast("dim"), broadcast("eps")
	one := YMM()
	VMOVUPS(constant(1), one)
	p, n := GP64(), GP64()
	loop("row", rows, func() {
		MOVQ(x, p)
		MOVQ(blocks, n)
		s := four(zeroed)
		Label("sum")
		for v := range s {
			z := YMM()
			VMOVUPS(at(p, v), z)
			VFMADD231PS(z, z, s[v])
		}
		ADDQ(Imm(128), p)
		DECQ(n)
		JNZ(LabelRef("sum"))
		r := butterfly(s)
		VDIVSS(dim.AsX(), r.AsX(), r.AsX())
		VADDSS(eps.AsX(), r.AsX(), r.AsX())
		VSQRTSS(r.AsX(), r.AsX(), r.AsX())
		VDIVSS(r.AsX(), one.AsX(), r.AsX())
		TESTQ(rstd, rstd)
		JZ(LabelRef("noRstd"))
		VMOVSS(r.AsX(), Mem{Base: rstd})
		ADDQ(Imm(4), rstd)
		Label("noRstd")
		VBROADCASTSS(r.AsX(), r)
		MOVQ(w, p)
		MOVQ(blocks, n)
		Label("scale")
		for v := range 4 {
			z := YMM()
			VMULPS(at(x, v), r, z)
			VMULPS(at(p, v), z, z)
			VMOVUPS(z, at(y, v))
		}
		ADDQ(Imm(128), x)
		ADDQ(Imm(128), y)
		ADDQ(Imm(128), p)
		DECQ(n)
		JNZ(LabelRef("scale"))
	})
	VZEROUPPER()
	RET()
}

func rmsNormInput() {
	TEXT("rmsNormInput", NOSPLIT, "func(dx, dy, x, w, rstd *float32, rows, blocks int, dim float32, acc int)")
	Doc("rmsNormInput sets dx, or adds to it if acc, for rows of blocks of 32.")
	dx, dy, x, w, rstd := Load(Param("dx"), GP64()), Load(Param("dy"), GP64()), Load(Param("x"), GP64()), Load(Param("w"), GP64()), Load(Param("rstd"), GP64())
	rows, blocks := Load(Param("rows"), GP64()), Load(Param("blocks"), GP64())
	acc := Load(Param("acc"), GP64())
	dim := broadcast("dim")
	px, pdy, pw, n := GP64(), GP64(), GP64(), GP64()
	loop("row", rows, func() {
		MOVQ(x, px)
		MOVQ(dy, pdy)
		MOVQ(w, pw)
		MOVQ(blocks, n)
		s := four(zeroed)
		Label("sum")
		for v := range s {
			g := YMM()
			VMOVUPS(at(pdy, v), g)
			VMULPS(at(pw, v), g, g)
			VFMADD231PS(at(px, v), g, s[v])
		}
		for _, q := range []reg.Register{px, pdy, pw} {
			ADDQ(Imm(128), q)
		}
		DECQ(n)
		JNZ(LabelRef("sum"))
		t := butterfly(s)
		r := YMM()
		VBROADCASTSS(Mem{Base: rstd}, r)
		ADDQ(Imm(4), rstd)
		VMULSS(r.AsX(), t.AsX(), t.AsX())
		VMULSS(r.AsX(), t.AsX(), t.AsX())
		VDIVSS(dim.AsX(), t.AsX(), t.AsX())
		VBROADCASTSS(t.AsX(), t)
		MOVQ(w, pw)
		MOVQ(blocks, n)
		Label("apply")
		for v := range 4 {
			g, z := YMM(), YMM()
			VMOVUPS(at(dy, v), g)
			VMULPS(at(pw, v), g, g)
			VMOVUPS(at(x, v), z)
			VFNMADD231PS(z, t, g) // g - t*x
			VMULPS(r, g, g)
			TESTQ(acc, acc)
			skip := []string{"set0", "set1", "set2", "set3"}[v]
			JZ(LabelRef(skip))
			VADDPS(at(dx, v), g, g)
			Label(skip)
			VMOVUPS(g, at(dx, v))
		}
		for _, q := range []reg.Register{dx, dy, x, pw} {
			ADDQ(Imm(128), q)
		}
		DECQ(n)
		JNZ(LabelRef("apply"))
	})
	VZEROUPPER()
	RET()
}

func rmsNormWeight() {
	TEXT("rmsNormWeight", NOSPLIT, "func(dw, dy, x, rstd *float32, rows, stride int)")
	Doc("rmsNormWeight continues the chains of 32 columns of dw over rows; stride is that of a row in bytes.")
	dw, dy, x, rstd := Load(Param("dw"), GP64()), Load(Param("dy"), GP64()), Load(Param("x"), GP64()), Load(Param("rstd"), GP64())
	rows, stride := Load(Param("rows"), GP64()), Load(Param("stride"), GP64())
	s := four(YMM)
	for v := range s {
		VMOVUPS(at(dw, v), s[v])
	}
	loop("row", rows, func() {
		r := YMM()
		VBROADCASTSS(Mem{Base: rstd}, r)
		for v := range s {
			z := YMM()
			VMULPS(at(x, v), r, z)
			VFMADD231PS(at(dy, v), z, s[v])
		}
		ADDQ(Imm(4), rstd)
		ADDQ(stride, x)
		ADDQ(stride, dy)
	})
	for v := range s {
		VMOVUPS(s[v], at(dw, v))
	}
	VZEROUPPER()
	RET()
}

func rope() {
	TEXT("rope", NOSPLIT, "func(x *float32, heads, vectors int, cos, sin *float32, sign uint32)")
	Doc("rope rotates the heads of one row; half a head is vectors of eight; sign is xored to sin.")
	x, heads, half := Load(Param("x"), GP64()), Load(Param("heads"), GP64()), Load(Param("vectors"), GP64())
	cos, sin := Load(Param("cos"), GP64()), Load(Param("sin"), GP64())
	sign := broadcast("sign")
	bytes := GP64()
	MOVQ(half, bytes)
	SHLQ(Imm(5), bytes)
	n, pc, ps := GP64(), GP64(), GP64()
	loop("head", heads, func() {
		MOVQ(half, n)
		MOVQ(cos, pc)
		MOVQ(sin, ps)
		Label("pair")
		a, b, c, s, t := YMM(), YMM(), YMM(), YMM(), YMM()
		VMOVUPS(Mem{Base: x}, a)
		VMOVUPS(Mem{Base: x, Index: bytes, Scale: 1}, b)
		VMOVUPS(at(pc, 0), c)
		VXORPS(at(ps, 0), sign, s)
		VMULPS(s, b, t)
		VFMSUB231PS(a, c, t) // a*c - b*s
		VMULPS(s, a, a)
		VFMADD231PS(b, c, a)
		VMOVUPS(t, Mem{Base: x})
		VMOVUPS(a, Mem{Base: x, Index: bytes, Scale: 1})
		for _, q := range []reg.Register{x, pc, ps} {
			ADDQ(Imm(32), q)
		}
		DECQ(n)
		JNZ(LabelRef("pair"))
		ADDQ(bytes, x)
	})
	VZEROUPPER()
	RET()
}
