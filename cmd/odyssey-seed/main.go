// Command odyssey-seed turns real tables into environments: data with a
// schema, a source and a split, the first stage of synthesis.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/cmdline"
	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/seed"
	"github.com/odyssey-rl/odyssey/internal/stream"
)

func main() { cmdline.Main(command()) }

// extensions are those of the files that are read out of folders.
var extensions = []string{".csv", ".tsv", ".tab", ".json", ".jsonl", ".ndjson"}

// word is what the names of tools are made of.
var word = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func command() *cmdline.Command {
	var (
		builtin bool
		options seed.Options
		limits  seed.Limits
		heldout seed.Heldout
		about   struct{ domain, subdomain, topic string }
		given   seed.Document // what flags say of every file
	)
	c := &cmdline.Command{
		Name:     "odyssey-seed",
		Summary:  "make environments of real tables",
		Operands: "[FILE|DIR...]",
		Shared:   cmdline.Output | cmdline.Seed | cmdline.DryRun | cmdline.Shard | cmdline.KeepGoing,
		Examples: "odyssey-seed --builtin --environments-per-table 4 > envs.jsonl\n" +
			"odyssey-seed --licence CC0-1.0 --url https://example.org/lakes.csv lakes.csv\n" +
			"odyssey-seed --builtin --dry-run",
		NoInputWhen: func() bool { return builtin },
	}
	c.Switch(&builtin, "builtin", "use the tables in the binary")
	c.Int(&options.Rows, "rows", 40, seed.MinRows, "most rows of a table in one environment")
	c.Int(&options.PerGroup, "environments-per-table", 1, 1, "environments, each of other rows, made of a table with more rows than that")
	c.Int(&options.Variants, "variants", 0, 0, "disguised variants of each train table to add")
	c.Func("heldout", "SHARE|NOUN,...", "0", "share of the tables, or their nouns, to hold out of training", func(text string) (err error) {
		heldout, err = parseHeldout(text)
		return err
	})
	c.String(&given.Source.Licence, "licence", "unknown", "licence of the files, an SPDX identifier").Metavar("ID")
	c.String(&given.Source.URL, "url", "", "where the files come from").Metavar("URL")
	c.String(&given.Source.Revision, "revision", "", "revision or date of the files")
	c.String(&about.domain, "domain", seed.Unclassified, "macro domain of the files")
	c.String(&about.subdomain, "subdomain", seed.Unclassified, "micro domain of the files")
	c.String(&about.topic, "topic", "", "topic of the files; of each table's noun by default")
	c.String(&given.Noun, "noun", "", "what a row of the file is, such as lake; inferred by default").Metavar("WORD").NoEnvironment()
	c.String(&given.Key, "key", "", "column that names the rows; inferred by default").Metavar("COLUMN").NoEnvironment()
	c.Int(&limits.KeyLength, "key-length", seed.DefaultLimits.KeyLength, 1, "longest key in characters; rows with longer ones are dropped")
	c.Int(&limits.TextLength, "text-length", seed.DefaultLimits.TextLength, 1, "longest other text in characters; longer ones become null or the column is dropped")
	c.Int(&limits.Columns, "columns", seed.DefaultLimits.Columns, 2, "most columns of a table")

	c.Validate = func(inv *cmdline.Invocation) error {
		if given.Noun != "" && !word.MatchString(given.Noun) {
			return cmdline.Hint(cmdline.Usagef("--noun %q cannot name a tool", given.Noun), "want letters, digits and _, a letter first, such as mountain_pass")
		}
		if !builtin {
			return nil
		}
		if len(inv.Operands) > 0 {
			return cmdline.Usagef("--builtin takes no FILE")
		}
		for _, name := range []string{"heldout", "licence", "url", "revision", "domain", "subdomain", "topic", "noun", "key", "key-length", "text-length", "columns"} {
			if inv.IsSet(name) {
				return cmdline.Usagef("--%s is about files; the tables of --builtin have theirs", name)
			}
		}
		return nil
	}
	c.Run = func(ctx context.Context, inv *cmdline.Invocation) error {
		options.Seed = inv.Seed
		var groups []seed.Group
		var err error
		if builtin {
			groups, err = seed.Builtin()
		} else {
			var tables []*seed.Table
			tables, err = readTables(ctx, inv, given, limits)
			for _, t := range tables {
				t.Domain, t.Subdomain = about.domain, about.subdomain
				if about.topic != "" {
					t.Topic = about.topic
				}
			}
			if err == nil {
				groups, err = seed.Relate(tables, heldout)
			}
		}
		if err != nil {
			return err
		}
		if inv.DryRun {
			return list(inv, groups)
		}
		out, err := inv.Writer(stream.Header{Kind: stream.KindEnvironment})
		if err != nil {
			return err
		}
		for environment, err := range seed.Environments(groups, options) {
			if err != nil {
				return err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if inv.Skip(environment.EnvironmentID) {
				continue
			}
			if err := out.WriteEnvironment(environment); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}

func parseHeldout(text string) (seed.Heldout, error) {
	if share, err := strconv.ParseFloat(text, 64); err == nil {
		if !(share >= 0 && share <= 1) {
			return seed.Heldout{}, fmt.Errorf("want a share from 0 to 1 or nouns")
		}
		return seed.Heldout{Share: share}, nil
	}
	nouns := strings.Split(text, ",")
	if slices.Contains(nouns, "") {
		return seed.Heldout{}, fmt.Errorf("want a share from 0 to 1 or nouns")
	}
	return seed.Heldout{Nouns: nouns}, nil
}

// readTables reads every operand: a file, the tables of a folder, or - for
// stdin. With --keep-going a file that is no table, or the same as another, is
// told of and left out.
func readTables(ctx context.Context, inv *cmdline.Invocation, given seed.Document, limits seed.Limits) ([]*seed.Table, error) {
	var files []string
	operands := inv.Operands
	if len(operands) == 0 {
		operands = []string{"-"}
	}
	for _, operand := range operands {
		if operand == "-" {
			files = append(files, operand)
			continue
		}
		err := filepath.WalkDir(operand, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case name != operand && strings.HasPrefix(entry.Name(), "."):
				if entry.IsDir() {
					return fs.SkipDir
				}
			case !entry.IsDir() && (name == operand || slices.Contains(extensions, strings.ToLower(filepath.Ext(name)))):
				files = append(files, name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no table in %s: looked for %s", strings.Join(operands, ", "), strings.Join(extensions, " "))
	}
	if len(files) > 1 && (given.Noun != "" || given.Key != "") {
		return nil, cmdline.Usagef("--noun and --key are about one file, not %d", len(files))
	}
	var tables []*seed.Table
	unlicensed := 0
	for _, name := range files {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		t, err := readTable(inv, name, given, limits)
		if err == nil {
			err = seed.Repeats(tables, t)
		}
		if err != nil {
			if inv.KeepGoing {
				inv.Warnf("%v; left out", err)
				continue
			}
			if len(files) > 1 {
				err = cmdline.Hint(err, "--keep-going leaves such a file out")
			}
			return nil, err
		}
		if t.Source.Licence == "unknown" {
			unlicensed++
		}
		tables = append(tables, t)
	}
	if len(tables) == 0 {
		return nil, fmt.Errorf("none of %d files is a table", len(files))
	}
	if unlicensed > 0 {
		inv.Logf("%d of %d tables have no known licence; --licence says it", unlicensed, len(tables))
	}
	return tables, nil
}

func readTable(inv *cmdline.Invocation, name string, d seed.Document, limits seed.Limits) (*seed.Table, error) {
	var err error
	if name == "-" {
		d.Path = "standard input"
		d.Content, err = io.ReadAll(inv.Stdin())
	} else {
		d.Path = filepath.ToSlash(name)
		d.Content, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(d.Content)
	d.Source.Kind, d.Source.Title, d.Source.Digest = "file", filepath.Base(d.Path), hex.EncodeToString(sum[:])
	t, err := seed.Parse(d, limits)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Path, err)
	}
	inv.Debugf("%s: %d rows of %s, %d kinds of change", d.Path, len(t.Rows), t.Noun, len(t.Cleaning))
	return t, nil
}

// list shows the tables instead of making environments.
func list(inv *cmdline.Invocation, groups []seed.Group) error {
	w, err := inv.Text()
	if err != nil {
		return err
	}
	for _, g := range groups {
		if len(g.Tables) > 1 {
			for _, j := range g.Joins {
				from := g.Tables[j.From]
				fmt.Fprintf(w, "%s.%s leads to %s\n", from.Noun, from.Columns[j.Column].Name, g.Tables[j.To].Noun)
			}
			if g.Tables[0].Source.Kind == "builtin" {
				continue // each of the tables is a group of its own too
			}
		}
		for _, t := range g.Tables {
			fmt.Fprintf(w, "%s: %s, %d rows, %s, %s\n", t.Noun, t.Split, len(t.Rows), t.Source.Licence, t.Source.Title)
			for _, column := range t.Columns {
				fmt.Fprintf(w, "  %s %s", column.Name, column.Type)
				if column.Unit != "" {
					fmt.Fprintf(w, " (%s)", column.Unit)
				}
				fmt.Fprintln(w)
			}
			for _, change := range t.Cleaning {
				fmt.Fprintf(w, "  cleaned: %s: %s, %d\n", named(change), change.Change, change.Count)
			}
		}
	}
	return nil
}

func named(c episode.Cleaning) string {
	if c.Column == "" {
		return "rows"
	}
	return c.Column
}
