// Command generate writes the assembly of package simd: ../avx2_amd64.s and its
// Go stubs. Run it by `go generate ./internal/kernel/simd`.
package main

import . "github.com/mmcloughlin/avo/build"

func main() {
	ConstraintExpr("!noasm")
	for rows := 1; rows <= 6; rows++ {
		gemm(rows, 1)
	}
	gemm(1, 2)
	gemm(1, 4)
	gemm(2, 2)
	gemm(3, 2)
	triangle("lowerTriangle", false)
	triangle("upperTriangle", true)
	copyPanel()
	copyTiles()
	peak()
	pause()
	softmax()
	probability()
	rowMax()
	rowExp()
	rowExpSum()
	rowExpEntropy()
	rowGradient()
	rowDot()
	rmsNorm()
	rmsNormInput()
	rmsNormWeight()
	rope()
	swiGLU()
	swiGLUBackward()
	add()
	sumSquares()
	adamW()
	Generate()
}
