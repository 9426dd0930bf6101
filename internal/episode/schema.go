package episode

// Schema describes the tables among an environment's files as odyssey-seed
// found them. It travels as JSON text in Environment.Schema: what the designer
// may know about a table without reading it again.
type Schema struct {
	Tables   []TableSchema `json:"tables"` // in the order of Environment.Files
	Cleaning []Cleaning    `json:"cleaning"`
}

// TableSchema describes one table: a JSON file holding an array of row
// objects, every row with every column, keys in the order of Columns. The key
// column comes first. A missing value is JSON null.
type TableSchema struct {
	Path    string   `json:"path"` // the file's path, such as "country.json"
	Noun    string   `json:"noun"` // what a row is, such as "country"; unique in the environment; an identifier
	Key     string   `json:"key"`  // name of the key column: unique, never null, text of at most 28 characters
	Rows    int      `json:"rows"`
	Columns []Column `json:"columns"`
	Joins   []Join   `json:"joins"`
}

// Column describes one column. Names are lower-case identifiers, unique in the
// table.
type Column struct {
	Name     string `json:"name"`
	Type     string `json:"type"`     // one of the Column type constants
	Unit     string `json:"unit"`     // unit of the stored number, such as "m" or "million USD"; "" where none
	Distinct int    `json:"distinct"` // number of different values that are not null
	Nulls    int    `json:"nulls"`    // number of rows without a value

	// Min and Max are the smallest and greatest value as JSON text: numbers for
	// integer and number, strings for date (ISO 8601, so that text order is
	// date order); "" for the other types and where every value is null.
	Min string `json:"min"`
	Max string `json:"max"`
}

// Column types. All values of a column that are not null have its JSON type.
const (
	ColumnKey      = "key"      // string: names the row
	ColumnCategory = "category" // string: few values, each on several rows; good to filter and group by
	ColumnText     = "text"     // string
	ColumnInteger  = "integer"  // number without fraction, magnitude at most 2^53
	ColumnNumber   = "number"   // number
	ColumnDate     = "date"     // string: YYYY-MM-DD, YYYY-MM or YYYY, alike in the whole column
	ColumnBoolean  = "boolean"  // true or false
)

// Join says that the values of Column are keys of another table: every value
// that is not null occurs in Table.Key.
type Join struct {
	Column string `json:"column"` // column of this table
	Table  string `json:"table"`  // noun of the other table
	Key    string `json:"key"`    // its key column
}

// Cleaning counts the values (or rows, columns) that one kind of change
// touched in one column of a table, before the rows of this environment were
// sampled.
type Cleaning struct {
	Table  string `json:"table"`  // noun
	Column string `json:"column"` // "" where the change concerns whole rows
	Change string `json:"change"` // such as "footnote removed" or "row without key dropped"
	Count  int    `json:"count"`
}

// Table returns the table of the given noun, nil where there is none.
func (s *Schema) Table(noun string) *TableSchema {
	for i := range s.Tables {
		if s.Tables[i].Noun == noun {
			return &s.Tables[i]
		}
	}
	return nil
}

// Column returns the column of the given name, nil where there is none.
func (t *TableSchema) Column(name string) *Column {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return &t.Columns[i]
		}
	}
	return nil
}
