// Package man holds the manual pages, so that a command can show its own
// without an installation.
package man

import "embed"

// Pages holds the pages by file name, such as odyssey-hca.1.
//
//go:embed *.[157]
var Pages embed.FS
