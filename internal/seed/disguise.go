package seed

import (
	"slices"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Disguised variants teach a policy to read tables instead of remembering
// them: the shape of a real table under other names. Nouns and columns are
// renamed, names, categories, texts and numbers replaced (one value by one
// value, so that groups and repeats stay), rows shuffled. Every second variant
// takes all its names from made-up words, so that nothing in it was seen
// before; the others take them from real tables of the train split, whole or
// as mixed words, and leave some things as they are.
//
// Made-up words are random syllables or, as often, pieces of real words put
// together. The pieces matter to a small vocabulary: syllables alone use few of
// its tokens, and a policy that never had to copy the others takes "company"
// for a word that begins alike.

// commonNouns and commonColumns are what renamed things are called when they
// are not syllables.
var (
	commonNouns = strings.Fields(`planet river castle poet recipe lake engine museum forest dancer insect flower singer author tower
		canal temple comet statue painter novel song coin stamp guitar orchard village mine glacier desert valley harbor rocket
		satellite robot sensor parcel invoice ticket hotel cafe school clinic garden farm market library theater quiz lesson course
		coach team league match trophy hero villain kingdom dynasty treaty battle fort camp trail route train tram bus truck tractor
		plane boat ferry yacht pump valve motor gear bolt wrench drill saw lamp chair desk sofa carpet window door roof wall brick
		tile pipe wire cable chip disk screen phone camera lens printer bridge island lighthouse meadow volcano cavern pilot baker
		tailor sailor farmer surgeon judge banker planter potter weaver violin drum flute opera ballet mural sculpture poem essay
		journal magazine puzzle kite lantern basket bottle kettle teapot blanket mirror ladder anchor compass saddle wagon carriage
		bicycle scooter helmet jacket scarf button ribbon necklace bracelet ruby emerald marble granite fossil orchid maple cedar
		walnut cherry mango pepper noodle biscuit pastry cheese falcon beetle dolphin turtle badger otter heron`)
	commonColumns = strings.Fields(`color size height weight length width depth age price cost score level grade speed power volume
		area mass energy origin owner maker brand model style genre theme mood season decade century city town state country region
		zone sector field topic label code tag group kind shape material texture flavor smell sound pitch tempo rhythm voltage
		current pressure humidity rainfall altitude latitude profit revenue budget salary tax fee rent debt count total share ratio
		rating votes wins losses goals points rounds laps stages floors rooms seats doors wheels wings legs population density
		language religion currency leader founder editor captain agent status phase period block shade origin strength duration
		distance capacity output range margin discount quality purity hardness gravity radius angle traffic visits orders sales
		stock bonus credits lessons pupils crew cargo fuel yield harvest climate terrain dialect motto emblem patron rival`)
	links           = []string{"partner", "sponsor", "home", "favorite"}
	nounSyllables   = strings.Fields("ba ko ri ten mar lo sha vi du ran pe ost ul qui zen fo ing er at sol mon dar pi gre stu cla bri ump eld ack ish om")
	nameSyllables   = strings.Fields("ba ko ri ten mar lo sha vi du ran pe ost ul qui zen fo sol mon dar pi gre stu cla bri eld ack om na te lu")
	numberCeilings  = []int{9, 50, 200, 3000, 30000}
	maxDisguiseName = 24 // characters of a made-up name
)

// disguiser makes variants of the tables of the train split.
type disguiser struct {
	tables []*Table
	pool   []string // their texts, sorted
	words  []string // what pieces are cut from: lower-case words of four letters or more
}

func newDisguiser(groups []Group) *disguiser {
	d := &disguiser{}
	for _, g := range groups {
		if len(g.Tables) == 1 && g.Tables[0].Split == episode.SplitTrain {
			d.tables = append(d.tables, g.Tables[0])
		}
	}
	for _, t := range d.tables {
		for c, column := range t.Columns {
			switch column.Type {
			case episode.ColumnKey, episode.ColumnCategory, episode.ColumnText:
			default:
				continue
			}
			for _, row := range t.Rows {
				if v := row[c]; !v.IsNull() && strings.ContainsFunc(v.text, isLetter) && len(v.text) <= maxDisguiseName {
					d.pool = append(d.pool, v.text)
				}
			}
		}
	}
	slices.Sort(d.pool)
	d.pool = slices.Compact(d.pool)
	d.words = slices.Concat(commonNouns, commonColumns)
	for _, text := range d.pool {
		d.words = append(d.words, strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !isLetter(r) })...)
	}
	slices.Sort(d.words)
	d.words = slices.DeleteFunc(slices.Compact(d.words), func(w string) bool { return len(w) < 4 })
	return d
}

// madeUp makes a word of two or three syllables, or of two or three pieces of
// real words.
func (d *disguiser) madeUp(r *random, syllables []string) string {
	if r.chance(0.5) {
		return syllableWord(r, syllables, 2, 3)
	}
	word := ""
	for range 2 + r.below(2) {
		from := pick(r, d.words)
		length := 2 + r.below(3)
		start := r.below(len(from) - length + 1)
		word += from[start : start+length]
	}
	return word
}

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }

// variant makes the i-th variant of a table: three in ten are two tables, the
// first with a made-up column that leads to the second. It reports false where
// too little is left.
func (d *disguiser) variant(table, i int, o Options) (Group, bool) {
	if len(d.pool) == 0 {
		return Group{}, false
	}
	r := newRandom("variant", o.Seed, d.tables[table].Noun, d.tables[table].Source.Digest, i)
	syllables := i%2 == 0
	first, ok := d.disguise(r, d.tables[table], o.Rows, syllables)
	if !ok {
		return Group{}, false
	}
	if len(d.tables) < 2 || !r.chance(0.3) {
		return Group{Tables: []*Table{first}}, true
	}
	other := r.below(len(d.tables) - 1)
	if other >= table {
		other++
	}
	second, ok := d.disguise(r, d.tables[other], o.Rows, syllables)
	if !ok || second.Noun == first.Noun {
		return Group{Tables: []*Table{first}}, true
	}
	link := pick(r, links)
	for slices.ContainsFunc(first.Columns, func(c Column) bool { return c.Name == link }) || link == second.Noun {
		link = pick(r, links) + "_" + syllableWord(r, nounSyllables, 1, 1)
	}
	first.Columns = append(first.Columns, Column{Name: link, Type: episode.ColumnText})
	for n := range first.Rows {
		first.Rows[n] = append(first.Rows[n], Text(pick(r, second.Rows)[0].text))
	}
	first.Cleaning = append(first.Cleaning, episode.Cleaning{Column: link, Change: "link made up", Count: len(first.Rows)})
	return Group{Tables: []*Table{first, second}, Joins: []Join{{0, len(first.Columns) - 1, 1}}}, true
}

// disguise makes one table over again under other names.
func (d *disguiser) disguise(r *random, t *Table, rows int, syllables bool) (*Table, bool) {
	all := make([]int, len(t.Rows))
	for i := range all {
		all[i] = i
	}
	if len(all) > rows {
		all = r.choose(all, rows)
	}
	shuffle(r, all)

	out := *t
	out.byKey = nil
	out.Topic = t.Topic + ", disguised"
	out.Cleaning = []episode.Cleaning{}
	count := func(column, what string, n int) {
		out.Cleaning = append(out.Cleaning, episode.Cleaning{Column: column, Change: what, Count: n})
	}

	out.Noun = t.Noun
	switch u := r.below(100); {
	case u < 15:
		out.Noun = pick(r, commonNouns)
	case u < 85 || syllables:
		out.Noun = d.madeUp(r, nounSyllables)
	}
	for reserved[out.Noun] {
		out.Noun = d.madeUp(r, nounSyllables)
	}
	if out.Noun != t.Noun {
		count("", "noun replaced", 1)
	}
	out.Columns = slices.Clone(t.Columns)
	taken := map[string]bool{}
	for c := range out.Columns {
		name := out.Columns[c].Name
		if c == 0 && r.chance(0.4) || c > 0 && r.chance(0.7) {
			name = pick(r, commonColumns)
			if r.chance(0.65) {
				name = d.madeUp(r, nounSyllables)
			}
		}
		for taken[name] || reserved[name] {
			name = pick(r, commonColumns)
		}
		taken[name] = true
		if name != out.Columns[c].Name {
			out.Columns[c].Name, out.Columns[c].Unit = name, ""
			count(name, "column renamed", 1)
		}
	}

	// Values are replaced one by one: equal values stay equal.
	replace := make([]func(Value) Value, len(out.Columns))
	scrambleKeys, scrambleValues := syllables || r.chance(0.6), syllables || r.chance(0.6)
	for c, column := range out.Columns {
		var make func() Value
		switch column.Type {
		case episode.ColumnKey:
			if scrambleKeys {
				make = func() Value { return Text(d.name(r, syllables)) }
			}
		case episode.ColumnCategory, episode.ColumnText:
			if scrambleValues {
				make = func() Value { return Text(d.name(r, syllables)) }
			}
		case episode.ColumnInteger:
			if scrambleValues {
				ceiling := pick(r, numberCeilings)
				make = func() Value { return Integer(int64(r.below(ceiling + 1))) }
			}
		}
		if make == nil {
			continue
		}
		made := map[string]Value{}
		replace[c] = func(v Value) Value {
			if _, ok := made[v.text]; !ok {
				made[v.text] = make()
			}
			return made[v.text]
		}
	}
	out.Rows = nil
	seen := map[string]bool{}
	for _, n := range all {
		row := slices.Clone(t.Rows[n])
		for c := range row {
			if replace[c] != nil && !row[c].IsNull() {
				row[c] = replace[c](row[c])
			}
		}
		if k := strings.ToLower(row[0].text); !seen[k] {
			seen[k] = true
			out.Rows = append(out.Rows, row)
		}
	}
	for c, column := range out.Columns {
		if replace[c] != nil {
			count(column.Name, "value replaced", len(out.Rows))
		}
	}
	count("", "row moved", len(out.Rows))
	return &out, len(out.Rows) >= MinRows
}

// name makes a name: made-up words, or a real text, or words of two real texts.
func (d *disguiser) name(r *random, syllables bool) string {
	if syllables {
		name := capitalised(d.madeUp(r, nameSyllables))
		if r.chance(0.3) {
			name += " " + capitalised(d.madeUp(r, nameSyllables))
		}
		return name
	}
	switch u := r.below(100); {
	case u < 35:
		return pick(r, d.pool)
	case u < 80:
		first, second := strings.Fields(pick(r, d.pool)), strings.Fields(pick(r, d.pool))
		name := pick(r, first)
		if b := pick(r, second); len(name)+1+len(b) <= maxDisguiseName {
			name += " " + b
		}
		return name
	}
	return d.name(r, true)
}

func capitalised(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// syllableWord joins between least and most syllables.
func syllableWord(r *random, from []string, least, most int) string {
	word := ""
	for range least + r.below(most-least+1) {
		word += pick(r, from)
	}
	return word
}
