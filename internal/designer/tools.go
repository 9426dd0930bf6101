package designer

// Tools derived from the schema: per table list, get, count and search, and
// the submission.

import (
	"fmt"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// SubmitTool is the name of the tool that ends an episode.
const SubmitTool = "submit"

// SubmitSchema is the schema of a submission: one answer, numbers as decimal
// text.
const SubmitSchema = `{"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"], "additionalProperties": false}`

// CodeNotFound is the refusal of a get tool.
const CodeNotFound = "not_found"

// maxListed bounds the rows that list and search return.
const maxListed = 5

// Parameters of the list tools that are no filters.
var listParameters = map[string]bool{"sort_by": true, "order": true, "limit": true}

// filterName is the parameter that filters by a column.
func filterName(column string) string {
	if listParameters[column] {
		return column + "_is"
	}
	return column
}

func isFilter(c episode.Column) bool {
	return c.Type == episode.ColumnCategory || c.Type == episode.ColumnText || c.Type == episode.ColumnBoolean
}

// isOrdered says whether rows can be sorted by the column.
func isOrdered(c episode.Column) bool {
	return c.Type == episode.ColumnInteger || c.Type == episode.ColumnNumber || c.Type == episode.ColumnDate
}

func (t *table) columnsThat(ok func(episode.Column) bool) []episode.Column {
	var out []episode.Column
	for _, c := range t.Columns {
		if ok(c) {
			out = append(out, c)
		}
	}
	return out
}

// Tools writes the tools of the database, the submit tool last. Their examples
// have arguments and no result yet.
func (d *Database) Tools() []episode.Tool {
	var tools []episode.Tool
	for _, t := range d.tables {
		tools = append(tools, t.listTool(), t.getTool())
		if len(t.columnsThat(isFilter)) > 0 {
			tools = append(tools, t.countTool())
		}
		tools = append(tools, t.searchTool())
	}
	return append(tools, episode.Tool{
		Name: SubmitTool, Description: "Submit the final answer and end.",
		Parameters: SubmitSchema, Returns: `{"type": "string"}`, Raises: []string{}, Language: "starlark",
		Source:   "def submit(answer):\n    return \"received\"\n",
		Examples: []episode.Example{},
	})
}

// parameters writes a JSON Schema object of the given properties in order.
func parameters(properties []string, required string) string {
	s := `{"type": "object", "properties": {` + strings.Join(properties, ", ") + `}, `
	if required != "" {
		s += `"required": ["` + required + `"], `
	}
	return s + `"additionalProperties": false}`
}

func property(name, schema string) string { return fmt.Sprintf("%q: %s", name, schema) }

func (t *table) filterProperties() []string {
	var out []string
	for _, c := range t.columnsThat(isFilter) {
		kind := `{"type": "string"}`
		if c.Type == episode.ColumnBoolean {
			kind = `{"type": "boolean"}`
		}
		out = append(out, property(filterName(c.Name), kind))
	}
	return out
}

// filtering is the lines that set rows to those that meet the filters in the
// dictionary where.
func (t *table) filtering() string {
	column := "column"
	var renamed []string
	for _, c := range t.columnsThat(isFilter) {
		if p := filterName(c.Name); p != c.Name {
			renamed = append(renamed, fmt.Sprintf("%q: %q", p, c.Name))
		}
	}
	if len(renamed) > 0 {
		column = "{" + strings.Join(renamed, ", ") + "}.get(column, column)"
	}
	return fmt.Sprintf("    rows = table(%s)\n    for column, value in where.items():\n        rows = [row for row in rows if row[%s] == value]\n", quote(t.Path), column)
}

func (t *table) listTool() episode.Tool {
	name := "list_" + t.Noun
	properties := t.filterProperties()
	signature, sorting := "limit=5, **where", ""
	var ordered []string
	for _, c := range t.columnsThat(isOrdered) {
		ordered = append(ordered, fmt.Sprintf("%q", c.Name))
	}
	if len(ordered) > 0 {
		properties = append(properties,
			property("sort_by", `{"type": "string", "enum": [`+strings.Join(ordered, ", ")+`]}`),
			property("order", `{"type": "string", "enum": ["asc", "desc"]}`))
		signature = "sort_by=None, order=\"asc\", " + signature
		sorting = "    if sort_by:\n" +
			"        rows = [row for row in rows if row[sort_by] != None]\n" +
			"        rows = sorted(rows, key=lambda row: row[sort_by], reverse=order == \"desc\")\n"
	}
	properties = append(properties, property("limit", fmt.Sprintf(`{"type": "integer", "minimum": 1, "maximum": %d}`, maxListed)))
	description := fmt.Sprintf("List the %s of the %s entries that match, at most %d", spaced(t.Key), spaced(t.Noun), maxListed)
	if len(ordered) > 0 {
		description += "; sorted by a column, entries without a value there left out"
	}
	return episode.Tool{
		Name: name, Description: description + ".",
		Parameters: parameters(properties, ""),
		Returns:    fmt.Sprintf(`{"type": "array", "items": {"type": "string"}, "maxItems": %d}`, maxListed),
		Raises:     []string{}, Pure: true, Language: "starlark",
		Source: fmt.Sprintf("def %s(%s):\n%s%s    return [row[%q] for row in rows[:limit]]\n",
			name, signature, t.filtering(), sorting, t.Key),
		Examples: t.listExamples(),
	}
}

func (t *table) getTool() episode.Tool {
	name := "get_" + t.Noun
	var returns, units []string
	for _, c := range t.Columns {
		if c.Unit != "" {
			units = append(units, spaced(c.Name)+" in "+strings.Join(strings.Fields(c.Unit), " "))
		}
		kind := "string"
		switch c.Type {
		case episode.ColumnInteger, episode.ColumnNumber, episode.ColumnBoolean:
			kind = c.Type
		}
		schema := fmt.Sprintf(`{"type": %q`, kind)
		if c.Nulls > 0 {
			schema = fmt.Sprintf(`{"type": [%q, "null"]`, kind)
		}
		returns = append(returns, property(c.Name, schema+"}"))
	}
	description := fmt.Sprintf("Get the %s entry of the given %s with all its columns", spaced(t.Noun), spaced(t.Key))
	if len(units) > 0 {
		description += ": " + strings.Join(units, ", ")
	}
	var examples []episode.Example
	for _, i := range []int{0, len(t.rows) - 1} {
		if i >= 0 && i < len(t.rows) {
			examples = append(examples, example(argument{t.Key, t.rows[i][t.Key]}))
		}
	}
	if t.keys["?"] == 0 {
		examples = append(examples, example(argument{t.Key, "?"}))
	}
	return episode.Tool{
		Name: name, Description: description + ".",
		Parameters: parameters([]string{property(t.Key, `{"type": "string"}`)}, t.Key),
		Returns:    `{"type": "object", "properties": {` + strings.Join(returns, ", ") + `}}`,
		Raises:     []string{CodeNotFound}, Pure: true, Language: "starlark",
		// The argument comes as a dictionary, since a column may be called as
		// a word of the language is. The refusal does not repeat the argument:
		// escaped quotes inside a string are a trap for a policy that copies.
		Source: fmt.Sprintf("def %[1]s(**arguments):\n"+
			"    value = arguments[%[3]q]\n"+
			"    row = lookup(%[2]s, %[3]q, value) or lookup(%[2]s, %[3]q, value, fold=True)\n"+
			"    if not row:\n"+
			"        refuse(%[4]q, \"no %[5]s with this %[6]s\")\n"+
			"    return row\n", name, quote(t.Path), t.Key, CodeNotFound, spaced(t.Noun), spaced(t.Key)),
		Examples: examples,
	}
}

func (t *table) countTool() episode.Tool {
	name := "count_" + t.Noun
	examples := []episode.Example{example()}
	for _, a := range t.exampleFilters() {
		examples = append(examples, example(a))
	}
	return episode.Tool{
		Name: name, Description: fmt.Sprintf("Count the %s entries that match.", spaced(t.Noun)),
		Parameters: parameters(t.filterProperties(), ""), Returns: `{"type": "integer"}`,
		Raises: []string{}, Pure: true, Language: "starlark",
		Source:   fmt.Sprintf("def %s(**where):\n%s    return len(rows)\n", name, t.filtering()),
		Examples: examples,
	}
}

func (t *table) searchTool() episode.Tool {
	name := "search_" + t.Noun
	var examples []episode.Example
	for _, i := range []int{0, len(t.rows) / 2} {
		if i < len(t.rows) {
			word, _, _ := strings.Cut(t.rows[i][t.Key].(string), " ")
			examples = append(examples, example(argument{"text", word}))
		}
	}
	return episode.Tool{
		Name: name, Description: fmt.Sprintf("List the %s of the %s entries whose %s contains a text, at most %d.", spaced(t.Key), spaced(t.Noun), spaced(t.Key), maxListed),
		Parameters: parameters([]string{property("text", `{"type": "string"}`)}, "text"),
		Returns:    fmt.Sprintf(`{"type": "array", "items": {"type": "string"}, "maxItems": %d}`, maxListed),
		Raises:     []string{}, Pure: true, Language: "starlark",
		Source: fmt.Sprintf("def %s(text):\n    return [row[%[2]q] for row in table(%[3]s) if text.lower() in row[%[2]q].lower()][:%[4]d]\n",
			name, t.Key, quote(t.Path), maxListed),
		Examples: examples,
	}
}

func example(arguments ...argument) episode.Example {
	return episode.Example{Arguments: string(appendObject(nil, arguments))}
}

// exampleFilters gives each filter the first value of its column.
func (t *table) exampleFilters() []argument {
	var out []argument
	for _, c := range t.columnsThat(isFilter) {
		for _, r := range t.rows {
			if r[c.Name] != nil {
				out = append(out, argument{filterName(c.Name), r[c.Name]})
				break
			}
		}
	}
	return out
}

func (t *table) listExamples() []episode.Example {
	limit := argument{"limit", 3}
	examples := []episode.Example{example(limit)}
	if filters := t.exampleFilters(); len(filters) > 0 {
		examples = append(examples, example(filters[0], limit))
	}
	if ordered := t.columnsThat(isOrdered); len(ordered) > 0 {
		examples = append(examples, example(argument{"sort_by", ordered[0].Name}, argument{"order", "desc"}, argument{"limit", 1}))
	}
	if len(examples) < 2 {
		examples = append(examples, example())
	}
	return examples
}

// spaced turns an identifier into words.
func spaced(identifier string) string { return strings.ReplaceAll(identifier, "_", " ") }
