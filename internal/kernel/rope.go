package kernel

// Tables of the rotary position embedding, in float64 arithmetic that gives the
// same bits on every platform: no library function, no fused operation.

import "math"

// RopeTables returns cos and sin of the angles of positions 0..maxPos-1, each
// [maxPos][headDim/2], as Rope reads them. The frequency of pair i is the
// float32 reciprocal of the float32 theta^(2i/headDim), and the angle is the
// float32 product of position and frequency: so the published models compute
// it. theta must be positive.
func RopeTables(maxPos, headDim int, theta float64) (cos, sin []float32) {
	half := headDim / 2
	cos = make([]float32, maxPos*half)
	sin = make([]float32, maxPos*half)
	logTheta := log64(theta)
	for i := range half {
		exponent := float64(2*i) / float64(headDim)
		frequency := float32(1 / float32(exp64(float64(exponent*logTheta))))
		for p := range maxPos {
			angle := float32(p) * frequency
			s, c := sincos64(float64(angle))
			cos[p*half+i] = float32(c)
			sin[p*half+i] = float32(s)
		}
	}
	return cos, sin
}

// ln 2 in two parts: multiples of the first by an exponent are exact.
const (
	ln2High64 = 6.93147180369123816490e-01
	ln2Low64  = 1.90821492927058770002e-10
)

// log64 returns ln x for a positive normal x, by the series of
// 2 atanh((m-1)/(m+1)) with m in [sqrt(1/2), sqrt(2)).
func log64(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	t := (m - 1) / (m + 1)
	square := float64(t * t)
	sum := 0.0
	for k := 25; k >= 1; k -= 2 {
		sum = float64(sum*square) + 1/float64(k)
	}
	return float64(float64(e)*ln2High64) + (float64(float64(e)*ln2Low64) + float64(2*float64(t*sum)))
}

// exp64 returns e**x for moderate x by its series on [-ln2/2, ln2/2].
func exp64(x float64) float64 {
	n := math.Floor(float64(x*math.Log2E) + 0.5)
	r := (x - float64(n*ln2High64)) - float64(n*ln2Low64)
	sum := 1.0
	for k := 16; k >= 1; k-- {
		sum = 1 + float64(r*sum)/float64(k)
	}
	return math.Ldexp(sum, int(n))
}

// Pi/2 in three parts of 33 bits and a tail, so that multiples by the quadrant
// number (below 2^20) are exact.
const (
	piHalf1 = 1.57079632673412561417e+00
	piHalf2 = 6.07710050630396597660e-11
	piHalf3 = 2.02226624871116645580e-21
	piHalf4 = 8.47842766036889956997e-32
)

// sincos64 returns sine and cosine of 0 <= x < 1.6e6.
func sincos64(x float64) (sin, cos float64) {
	n := math.Floor(float64(x*(2/math.Pi)) + 0.5)
	r := x - float64(n*piHalf1)
	r -= float64(n * piHalf2)
	r -= float64(n * piHalf3)
	r -= float64(n * piHalf4)
	square := float64(r * r)
	s, c := 1.0, 1.0 // series of sin(r)/r and cos(r) on [-pi/4, pi/4]
	for k := 20; k >= 2; k -= 2 {
		s = 1 - float64(square*s)/float64(k*(k+1))
		c = 1 - float64(square*c)/float64(k*(k-1))
	}
	s = float64(s * r)
	switch int64(n) & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	default:
		return -c, s
	}
}
