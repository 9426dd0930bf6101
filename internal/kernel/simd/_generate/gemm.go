package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gemm emits the tile of rows x 16*panels elements of C, one fused
// multiply-add chain each, k ascending. All strides are in bytes: lda between
// rows of A, as between its k, at between its tiles, bs between k of B, ps
// between panels of 16 columns, ldc between rows of C (panels stand side by
// side in it). Tiles follow one another down A and C. Twelve accumulators at
// most, so that with the loads 16 registers suffice.
func gemm(rows, panels int) {
	TEXT(fmt.Sprintf("gemm%dx%d", rows, panels), NOSPLIT,
		"func(tiles, k int, a *float32, lda, as, at int, b *float32, bs, ps int, c *float32, ldc, acc int)")
	Doc(fmt.Sprintf("gemm%dx%d computes tiles of %d rows by %d panels of 16 columns.", rows, panels, rows, panels))
	vectors := 2 * panels
	tiles := Load(Param("tiles"), GP64())
	tileA := Load(Param("a"), GP64())
	tileC := Load(Param("c"), GP64())
	lda := Load(Param("lda"), GP64())
	as := Load(Param("as"), GP64())
	bs := Load(Param("bs"), GP64())
	ldc := Load(Param("ldc"), GP64())
	var ps, ps3 reg.GPVirtual
	if panels > 1 {
		ps = GP64()
		Load(Param("ps"), ps)
	}
	if panels > 3 {
		ps3 = GP64()
		LEAQ(Mem{Base: ps, Index: ps, Scale: 2}, ps3)
	}
	acc := make([][]reg.VecVirtual, rows)
	for r := range acc {
		acc[r] = make([]reg.VecVirtual, vectors)
		for v := range acc[r] {
			acc[r][v] = YMM()
		}
	}
	// Either all of B's vectors of one k stay in registers and A is broadcast
	// row by row, or the other way round, whichever needs fewer registers.
	keepB := rows*vectors+vectors+1 <= 16

	a0, a3, b, k, p := GP64(), GP64(), GP64(), GP64(), GP64()

	Label("tile")
	Load(Param("acc"), k)
	TESTQ(k, k)
	JZ(LabelRef("zero"))
	MOVQ(tileC, p)
	for r := range rows {
		for v := range vectors {
			VMOVUPS(Mem{Base: p, Disp: v * 32}, acc[r][v])
		}
		if r+1 < rows {
			ADDQ(ldc, p)
		}
	}
	JMP(LabelRef("begin"))
	Label("zero")
	for r := range rows {
		for v := range vectors {
			VXORPS(acc[r][v], acc[r][v], acc[r][v])
		}
	}
	Label("begin")
	MOVQ(tileA, a0)
	if rows > 3 {
		LEAQ(Mem{Base: tileA, Index: lda, Scale: 2}, a3)
		ADDQ(lda, a3)
	}
	Load(Param("b"), b)
	Load(Param("k"), k)

	memA := func(r int) Mem {
		base := a0
		if r >= 3 {
			base, r = a3, r-3
		}
		if r == 0 {
			return Mem{Base: base}
		}
		return Mem{Base: base, Index: lda, Scale: uint8(r)}
	}
	memB := func(v int) Mem {
		m := Mem{Base: b, Disp: v % 2 * 32}
		switch v / 2 {
		case 1:
			m.Index, m.Scale = ps, 1
		case 2:
			m.Index, m.Scale = ps, 2
		case 3:
			m.Index, m.Scale = ps3, 1
		}
		return m
	}
	step := func() {
		if keepB {
			column := make([]reg.VecVirtual, vectors)
			for v := range column {
				column[v] = YMM()
				VMOVUPS(memB(v), column[v])
			}
			for r := range rows {
				x := YMM()
				VBROADCASTSS(memA(r), x)
				for v := range column {
					VFMADD231PS(column[v], x, acc[r][v])
				}
			}
		} else {
			row := make([]reg.VecVirtual, rows)
			for r := range row {
				row[r] = YMM()
				VBROADCASTSS(memA(r), row[r])
			}
			for v := range vectors {
				x := YMM()
				VMOVUPS(memB(v), x)
				for r := range row {
					VFMADD231PS(x, row[r], acc[r][v])
				}
			}
		}
		ADDQ(as, a0)
		if rows > 3 {
			ADDQ(as, a3)
		}
		ADDQ(bs, b)
	}
	SUBQ(Imm(4), k)
	JL(LabelRef("tail"))
	Label("four")
	for range 4 {
		step()
	}
	SUBQ(Imm(4), k)
	JGE(LabelRef("four"))
	Label("tail")
	ADDQ(Imm(4), k)
	JZ(LabelRef("store"))
	Label("one")
	step()
	DECQ(k)
	JNZ(LabelRef("one"))
	Label("store")
	for r := range rows {
		for v := range vectors {
			VMOVUPS(acc[r][v], Mem{Base: tileC, Disp: v * 32})
		}
		_ = r
		ADDQ(ldc, tileC)
	}
	ADDQ(NewParamAddr("at", 40), tileA)
	DECQ(tiles)
	JNZ(LabelRef("tile"))
	VZEROUPPER()
	RET()
}

// triangle emits the ragged part of a tile of causal attention: five steps of k
// of which row r takes the first r (rows 1..5, upper false) or those from r on
// (rows 0..4, upper true). C is continued.
func triangle(name string, upper bool) {
	TEXT(name, NOSPLIT, "func(panels int, a *float32, lda, as int, b *float32, bs int, c *float32, ldc int)")
	if upper {
		Doc(name + " continues rows 0..4 of C, row r over k = r..4, for panels of 16 columns side by side.")
	} else {
		Doc(name + " continues rows 1..5 of C, row r over k = 0..r-1, for panels of 16 columns side by side.")
	}
	panels := Load(Param("panels"), GP64())
	a := Load(Param("a"), GP64())
	lda, as := Load(Param("lda"), GP64()), Load(Param("as"), GP64())
	b, bs := Load(Param("b"), GP64()), Load(Param("bs"), GP64())
	c, ldc := Load(Param("c"), GP64()), Load(Param("ldc"), GP64())
	if !upper {
		ADDQ(lda, a)
		ADDQ(ldc, c)
	}
	a0, a3, w, p := GP64(), GP64(), GP64(), GP64()
	Label("panel")
	var acc [5][2]reg.VecVirtual
	MOVQ(c, p)
	for r := range acc {
		for v := range acc[r] {
			acc[r][v] = YMM()
			VMOVUPS(at(p, v), acc[r][v])
		}
		if r < 4 {
			ADDQ(ldc, p)
		}
	}
	MOVQ(a, a0)
	LEAQ(Mem{Base: a, Index: lda, Scale: 2}, a3)
	ADDQ(lda, a3)
	MOVQ(b, w)
	for k := range 5 {
		x, y := YMM(), YMM()
		VMOVUPS(at(w, 0), x)
		VMOVUPS(at(w, 1), y)
		for r := range acc {
			if upper && r > k || !upper && r < k {
				continue
			}
			m := Mem{Base: a0}
			if r >= 3 {
				m.Base = a3
			}
			if r%3 != 0 {
				m.Index, m.Scale = lda, uint8(r%3)
			}
			t := YMM()
			VBROADCASTSS(m, t)
			VFMADD231PS(x, t, acc[r][0])
			VFMADD231PS(y, t, acc[r][1])
		}
		if k < 4 {
			ADDQ(as, a0)
			ADDQ(as, a3)
			ADDQ(bs, w)
		}
	}
	MOVQ(c, p)
	for r := range acc {
		for v := range acc[r] {
			VMOVUPS(acc[r][v], at(p, v))
		}
		if r < 4 {
			ADDQ(ldc, p)
		}
	}
	ADDQ(Imm(64), b)
	ADDQ(Imm(64), c)
	DECQ(panels)
	JNZ(LabelRef("panel"))
	VZEROUPPER()
	RET()
}

// peak emits independent fused multiply-adds at the machine's full rate, the
// measure that benchmarks compare with: 12 vectors of 8, 4 times per iteration.
func peak() {
	TEXT("peak", NOSPLIT, "func(iterations int)")
	Doc("peak runs 4*12*8 fused multiply-adds per iteration.")
	n := Load(Param("iterations"), GP64())
	var r [12]reg.VecVirtual
	for i := range r {
		r[i] = YMM()
		VXORPS(r[i], r[i], r[i])
	}
	Label("loop")
	for range 4 {
		for i := range r {
			VFMADD231PS(r[i], r[i], r[i])
		}
	}
	DECQ(n)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// pause emits a spin-wait hint.
func pause() {
	TEXT("pause", NOSPLIT, "func()")
	Doc("pause tells the processor that the caller spins.")
	for range 4 {
		PAUSE()
	}
	RET()
}

// copyPanel emits the copy of 16 columns of a matrix.
func copyPanel() {
	TEXT("copyPanel", NOSPLIT, "func(dst, src *float32, rows, stride int)")
	Doc("copyPanel copies rows of 16 elements, stride bytes apart, to rows side by side.")
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	rows, stride := Load(Param("rows"), GP64()), Load(Param("stride"), GP64())
	loop("loop", rows, func() {
		x, y := YMM(), YMM()
		VMOVUPS(at(src, 0), x)
		VMOVUPS(at(src, 1), y)
		VMOVUPS(x, at(dst, 0))
		VMOVUPS(y, at(dst, 1))
		ADDQ(stride, src)
		ADDQ(Imm(64), dst)
	})
	VZEROUPPER()
	RET()
}

// copyTiles emits the copy of rows of a matrix into tiles of 6 columns, row by
// row: rows far apart share cache sets, so each line is read only once. Of each
// six elements 8 are read and written.
func copyTiles() {
	TEXT("copyTiles", NOSPLIT, "func(dst, src *float32, tiles, rows, stride, tileStride int)")
	Doc("copyTiles copies rows, stride bytes apart, into tiles of rows of 6 elements, tileStride bytes apart. It reads two elements past the last six and writes two past each tile.")
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	tiles, rows := Load(Param("tiles"), GP64()), Load(Param("rows"), GP64())
	stride, tileStride := Load(Param("stride"), GP64()), Load(Param("tileStride"), GP64())
	p, q, n := GP64(), GP64(), GP64()
	loop("row", rows, func() {
		MOVQ(src, p)
		MOVQ(dst, q)
		MOVQ(tiles, n)
		loop("tile", n, func() {
			x := YMM()
			VMOVUPS(at(p, 0), x)
			VMOVUPS(x, at(q, 0))
			ADDQ(Imm(24), p)
			ADDQ(tileStride, q)
		})
		ADDQ(stride, src)
		ADDQ(Imm(24), dst)
	})
	VZEROUPPER()
	RET()
}
