// Constructs that parse but can only fail when they run. They are refused when
// a script is loaded, with their place, so that a designer can mend them.
package sandbox

import (
	"regexp"

	"go.starlark.net/syntax"
)

var (
	percentPrecision = regexp.MustCompile(`%[-+ #0]*[0-9]*\.[0-9]+[a-zA-Z]|%[-+ #]*[0-9]+[a-zA-Z]`)
	formatSpec       = regexp.MustCompile(`\{[^{}]*:[^{}]*\}`)
)

// lint returns the first such construct of a file, or nil.
func lint(file *syntax.File) *syntax.Error {
	var found *syntax.Error
	report := func(n syntax.Node, message string) {
		if found == nil {
			start, _ := n.Span()
			found = &syntax.Error{Pos: start, Msg: message}
		}
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.BinaryExpr:
			if s, ok := literal(n.X); ok && n.Op == syntax.PERCENT && percentPrecision.MatchString(s) {
				report(n.X, "% formatting has no width or precision here: use fixed(x, digits)")
			}
		case *syntax.CallExpr:
			dot, ok := n.Fn.(*syntax.DotExpr)
			if !ok || dot.Name.Name != "format" {
				break
			}
			if s, ok := literal(dot.X); ok && formatSpec.MatchString(s) {
				report(dot.X, "format has no format specifications here: use fixed(x, digits)")
			}
		case *syntax.LoadStmt:
			report(n, "load is not available")
		}
		return found == nil
	})
	return found
}

func literal(e syntax.Expr) (string, bool) {
	if p, ok := e.(*syntax.ParenExpr); ok {
		return literal(p.X)
	}
	l, ok := e.(*syntax.Literal)
	if !ok || l.Token != syntax.STRING {
		return "", false
	}
	s, ok := l.Value.(string)
	return s, ok
}
