package kernel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// exactFMA rounds a*b+c once, by big arithmetic.
func exactFMA(a, b, c float32) float32 {
	exact := new(big.Float).SetPrec(1000)
	exact.Mul(big.NewFloat(float64(a)).SetPrec(1000), big.NewFloat(float64(b)))
	exact.Add(exact, new(big.Float).SetPrec(1000).SetFloat64(float64(c)))
	r, _ := exact.Float32()
	return r
}

func TestFMA32RoundsOnce(t *testing.T) {
	from := math.Float32frombits
	if got := FMA32(from(0x4897b039), from(0x47400000), from(0xae58e797)); math.Float32bits(got) != math.Float32bits(exactFMA(from(0x4897b039), from(0x47400000), from(0xae58e797))) {
		t.Errorf("the known double-rounding case gives %x", math.Float32bits(got))
	}
	r := rand.New(rand.NewPCG(1, 2))
	value := func() float32 {
		for {
			v := from(r.Uint32())
			switch r.IntN(4) {
			case 0: // near one, few bits: ties are frequent
				v = from(0x3f000000 + r.Uint32()&0x01fff000)
			case 1: // subnormal
				v = from(r.Uint32() & 0x807fffff)
			case 2:
				v = from(0x10000000 + r.Uint32()&0x8fffffff)
			}
			if v == v && !math.IsInf(float64(v), 0) {
				return v
			}
		}
	}
	for range 300000 {
		a, b, c := value(), value(), value()
		if r.IntN(2) == 0 { // force cancellation and ties: c beside -a*b or a half step away
			c = -float32(float64(a) * float64(b))
			if r.IntN(2) == 0 {
				c = from(math.Float32bits(c) + 24<<23)
			}
			if c != c || math.IsInf(float64(c), 0) {
				continue
			}
		}
		want := exactFMA(a, b, c)
		got := FMA32(a, b, c)
		if got != want || (want != 0 && math.Signbit(float64(got)) != math.Signbit(float64(want))) {
			t.Fatalf("FMA32(%x, %x, %x) = %x, exact %x", math.Float32bits(a), math.Float32bits(b), math.Float32bits(c), math.Float32bits(got), math.Float32bits(want))
		}
	}
	inf := float32(math.Inf(1))
	for _, c := range [][4]float32{{inf, 1, 1, inf}, {1, 1, -inf, -inf}, {math.MaxFloat32, 2, 0, inf}} {
		if got := FMA32(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("FMA32(%v) = %v", c, got)
		}
	}
	if got := FMA32(inf, 0, 1); got == got {
		t.Errorf("inf*0+1 = %v", got)
	}
}

func TestExpAndLogAreWithinTwoUnits(t *testing.T) {
	check := func(name string, f func(float32) float32, want func(float64) float64, x float32) {
		got, exact := float64(f(x)), want(float64(x))
		unit := math.Abs(exact) * 0x1p-23
		if unit < 0x1p-149 {
			unit = 0x1p-149
		}
		if math.Abs(got-exact) > 2*unit {
			t.Fatalf("%s(%v) = %v, want %v", name, x, got, exact)
		}
	}
	for i := range 2000000 {
		x := float32(-87.3 + float64(i)*(88.72+87.3)/2000000)
		check("exp", Exp, math.Exp, x)
	}
	for bits := uint32(1); bits < 0x7f800000; bits += 1021 {
		check("log", Log, math.Log, math.Float32frombits(bits))
	}
	inf := float32(math.Inf(1))
	if Exp(-inf) != 0 || Exp(inf) != inf || Exp(-87.31) != 0 || Exp(88.73) != inf || Exp(0) != 1 || Exp(ExpHigh) == inf {
		t.Error("an edge of Exp is wrong")
	}
	if Log(0) != -inf || Log(inf) != inf || Log(1) != 0 {
		t.Error("an edge of Log is wrong")
	}
	nan := float32(math.NaN())
	if e, l, m := Exp(nan), Log(nan), Log(-1); e == e || l == l || m == m {
		t.Error("NaN is not kept")
	}
}

func TestRopeTablesAgreeWithTheLibrary(t *testing.T) {
	const maxPos, headDim, theta = 5000, 128, 1e6
	cos, sin := RopeTables(maxPos, headDim, theta)
	for i := range headDim / 2 {
		frequency := 1 / float32(math.Pow(theta, 2*float64(i)/headDim))
		for p := 0; p < maxPos; p += 7 {
			angle := float64(float32(p) * frequency)
			if c := math.Cos(angle); math.Abs(float64(cos[p*headDim/2+i])-c) > 1e-7*(1+angle) {
				t.Fatalf("cos of position %d, pair %d: %v, want %v", p, i, cos[p*headDim/2+i], c)
			}
			if s := math.Sin(angle); math.Abs(float64(sin[p*headDim/2+i])-s) > 1e-7*(1+angle) {
				t.Fatalf("sin of position %d, pair %d: %v, want %v", p, i, sin[p*headDim/2+i], s)
			}
		}
	}
}
