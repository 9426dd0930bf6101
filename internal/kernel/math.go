package kernel

// This file holds the scalar functions that every backend shares by bits: the
// fused multiply-add and the few transcendental functions, each a fixed
// sequence of correctly rounded float32 operations. math.Exp and math.Log are
// never used: their bits differ between platforms.
//
// A NaN is a NaN: its sign and payload are not part of any definition.

import "math"

// FMA32 returns a*b+c rounded once to float32.
//
// float32(math.FMA(a, b, c)) rounds twice and is wrong on ties of the first
// rounding. Here the product of two float32 is exact in float64; if the sum is
// not on a tie between two float32 of any exponent, one conversion is right;
// else the sum is first rounded to odd.
func FMA32(a, b, c float32) float32 {
	product := float64(float64(a) * float64(b))
	sum := product + float64(c)
	if math.Float64bits(sum)&0x0fffffff != 0 {
		return float32(sum)
	}
	return roundOdd(product, float64(c), sum)
}

// roundOdd finishes FMA32 where sum could be a tie: TwoSum gives the exact
// error of sum, and an inexact even sum moves to its odd neighbour on the side
// of the error.
func roundOdd(product, addend, sum float64) float32 {
	rest := float64(sum - product)
	err := float64(product-float64(sum-rest)) + float64(addend-rest)
	const exponent = 0x7ff << 52
	bits := math.Float64bits(sum)
	if err == 0 || err != err || bits&1 == 1 || bits&exponent == exponent {
		return float32(sum)
	}
	if (err > 0) == (sum > 0) {
		bits++
	} else {
		bits--
	}
	return float32(math.Float64frombits(bits))
}

// Constants of Exp and Log. The polynomials are minimax fits over the reduced
// range, of relative error 3e-9 (Exp) and 6e-9 (Log) before rounding.
const (
	// ExpLow: Exp is +0 below it, which keeps every result a normal number.
	ExpLow = -87.3
	// ExpHigh is the largest argument whose exponential is finite here.
	ExpHigh = 88.72283172607422
	// Log2E is 1/ln 2.
	Log2E = 1.4426950408889634
	// Ln2High and Ln2Low sum to ln 2; multiples of Ln2High are exact.
	Ln2High = 0.693359375
	Ln2Low  = -0.000212194440054691
	// RoundMagic, added and subtracted, rounds to the nearest integer; its low
	// nine bits are zero, so shifting the sum's bits by 23 leaves the integer in
	// the place of an exponent.
	RoundMagic = 12582912.0

	// ExpC0..ExpC4: exp(r) = 1 + r + r*r*(C0 + C1 r + ... + C4 r^4).
	ExpC0 = 0.499999933335
	ExpC1 = 0.166665189386
	ExpC2 = 0.0416684079729
	ExpC3 = 0.00836892179332
	ExpC4 = 0.0013814174161
)

// Exp returns e**x: +0 below ExpLow, +Inf above ExpHigh, NaN for NaN.
func Exp(x float32) float32 {
	if x < ExpLow {
		return 0
	}
	if !(x <= ExpHigh) {
		return x + float32(math.Inf(1))
	}
	shifted := FMA32(x, Log2E, RoundMagic)
	n := shifted - RoundMagic
	r := FMA32(n, -Ln2High, x)
	r = FMA32(n, -Ln2Low, r)
	p := float32(ExpC4)
	p = FMA32(p, r, ExpC3)
	p = FMA32(p, r, ExpC2)
	p = FMA32(p, r, ExpC1)
	p = FMA32(p, r, ExpC0)
	p = FMA32(p, float32(r*r), r)
	p = p + 1
	return math.Float32frombits(math.Float32bits(p) + math.Float32bits(shifted)<<23)
}

// Sigmoid returns 1/(1+Exp(-x)).
func Sigmoid(x float32) float32 { return 1 / (1 + Exp(-x)) }

// Sqrt returns the correctly rounded square root. (Rounding the float64 root
// to float32 is exact rounding: 53 >= 2*24+2 bits.)
func Sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// Rsqrt returns 1/Sqrt(x), two correctly rounded operations.
func Rsqrt(x float32) float32 { return 1 / Sqrt(x) }

// Log returns the natural logarithm: -Inf for zero, NaN below zero and for NaN.
func Log(x float32) float32 {
	switch {
	case x != x || x < 0:
		return float32(math.NaN())
	case x == 0:
		return float32(math.Inf(-1))
	case x > math.MaxFloat32:
		return x
	}
	exponent := int32(0)
	if x < 0x1p-126 {
		x *= 0x1p24
		exponent = -24
	}
	const halfSqrt = 0x3f3504f3 // bits of sqrt(1/2): the mantissa is taken in [sqrt(1/2), sqrt(2))
	bits := math.Float32bits(x)
	shift := int32(bits-halfSqrt) >> 23
	exponent += shift
	f := math.Float32frombits(bits-uint32(shift)<<23) - 1
	// log(1+f) = f - f*f/2 + f*f*f*(c0 + c1 f + ... + c7 f^7)
	p := float32(-0.0763449398631)
	p = FMA32(p, f, 0.127615745496)
	p = FMA32(p, f, -0.13160182163)
	p = FMA32(p, f, 0.142017583522)
	p = FMA32(p, f, -0.166233574103)
	p = FMA32(p, f, 0.20001226863)
	p = FMA32(p, f, -0.250008210321)
	p = FMA32(p, f, 0.333333317078)
	square := float32(f * f)
	p = float32(float32(p*f) * square)
	n := float32(exponent)
	p = FMA32(n, Ln2Low, p)
	p = FMA32(-0.5, square, p)
	p = p + f
	return FMA32(n, Ln2High, p)
}
