// Explaining one trajectory: what was seen, whose fault it is, which tokens are
// trained and with which numbers, and what plain GRPO would have done. Every
// line is one of the paper's quantities.
package hca

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/token"
)

// CertainProbability is the sampling probability above which a blamed token has
// next to no gradient: the wrong decision then lies elsewhere.
const CertainProbability = 0.95

// Explanation is what is known about one trajectory. Its JSON is the form of
// `odyssey-hca --explain --json`.
type Explanation struct {
	TrajectoryID  string             `json:"trajectory_id"`
	Abnormal      bool               `json:"abnormal"`
	LeftOut       bool               `json:"left_out"`
	Failure       *ExplainedFailure  `json:"failure"` // the charged one, null if there is none
	Also          []ExplainedFailure `json:"also"`
	TokensTrained int                `json:"tokens_trained"` // N_i, the sum of m
	TokensSampled int                `json:"tokens_sampled"` // the sum of b
	Return        float64            `json:"return"`
	Advantage     *float64           `json:"advantage"`
	Baseline      episode.Baseline   `json:"baseline"`
	GRPO          Alternative        `json:"grpo"`

	tr        *episode.Trajectory
	group     []*episode.Trajectory
	settings  Settings
	tokenizer *token.Tokenizer
	plain     Settings
}

// ExplainedFailure is a failure with its culprit decoded. Turn counts assistant
// turns from 0; bytes are offsets in that turn's text.
type ExplainedFailure struct {
	Kind      string        `json:"kind"`
	Fault     string        `json:"fault"`
	Detail    string        `json:"detail"`
	Turn      int           `json:"turn"`
	Text      string        `json:"text"`
	ByteStart int           `json:"byte_start"`
	ByteEnd   int           `json:"byte_end"`
	Tokens    []BlamedToken `json:"tokens"`
}

// BlamedToken is one token of a culprit.
type BlamedToken struct {
	Index       int     `json:"index"` // in token_ids
	ID          int32   `json:"id"`
	Text        string  `json:"text"`
	Probability float64 `json:"probability"` // with which it was sampled
	Trained     bool    `json:"trained"`     // m = 1
}

// Alternative is what another estimator gives the same row.
type Alternative struct {
	TokensTrained int              `json:"tokens_trained"`
	Advantage     *float64         `json:"advantage"`
	Baseline      episode.Baseline `json:"baseline"`
	weight        float64
}

// Explain explains row i of a group to which Assign has been applied with s.
func Explain(group []*episode.Trajectory, i int, s Settings, t *token.Tokenizer) (*Explanation, error) {
	tr := group[i]
	if tr.Credit == nil {
		return nil, fmt.Errorf("trajectory %s: no credit to explain", tr.TrajectoryID)
	}
	for j, id := range tr.TokenIDs {
		if id < 0 || int(id) >= t.VocabSize() {
			return nil, fmt.Errorf("trajectory %s: token %d has id %d, outside the tokenizer's %d", tr.TrajectoryID, j, id, t.VocabSize())
		}
	}
	plain, err := Preset("grpo")
	if err != nil {
		return nil, err
	}
	plain.GroupsPerStep, plain.RewardMin, plain.RewardMax = s.GroupsPerStep, s.RewardMin, s.RewardMax
	credits, err := assign(group, plain)
	if err != nil {
		return nil, err
	}
	r, err := judge(tr, s)
	if err != nil {
		return nil, err
	}
	e := &Explanation{
		TrajectoryID: tr.TrajectoryID, Abnormal: r.abnormal, LeftOut: r.out, Also: []ExplainedFailure{},
		TokensTrained: Count(tr.Credit.CreditMask), TokensSampled: Count(tr.LossMask),
		Return: tr.Credit.Return, Advantage: tr.Credit.Advantage, Baseline: tr.Credit.Baseline,
		GRPO: Alternative{Count(credits[i].CreditMask), credits[i].Advantage, credits[i].Baseline, credits[i].Weight},
		tr:   tr, group: group, settings: s, tokenizer: t, plain: plain,
	}
	for n, f := range tr.Failures {
		x := e.explainFailure(f)
		if n == 0 {
			e.Failure = &x
		} else {
			e.Also = append(e.Also, x)
		}
	}
	return e, nil
}

func (e *Explanation) explainFailure(f episode.Failure) ExplainedFailure {
	x := ExplainedFailure{Kind: f.Kind, Fault: f.Fault, Detail: f.Detail, Turn: assistantTurn(e.tr, f.Turn),
		ByteStart: f.ByteStart, ByteEnd: f.ByteEnd, Tokens: []BlamedToken{}}
	text := e.turnBytes(f.Turn)
	if 0 <= f.ByteStart && f.ByteStart <= f.ByteEnd && f.ByteEnd <= len(text) {
		x.Text = string(text[f.ByteStart:f.ByteEnd])
	}
	for j := f.TokenStart; j < f.TokenEnd; j++ {
		x.Tokens = append(x.Tokens, e.blamed(j))
	}
	return x
}

func (e *Explanation) blamed(j int) BlamedToken {
	id := e.tr.TokenIDs[j]
	return BlamedToken{Index: j, ID: id, Text: string(e.tokenizer.Bytes(id)),
		Probability: e.probability(j), Trained: e.tr.Credit.CreditMask[j] == 1}
}

func (e *Explanation) probability(j int) float64 {
	if e.tr.LossMask[j] == 0 || j >= len(e.tr.RolloutLogprobs) {
		return 0
	}
	return math.Exp(float64(e.tr.RolloutLogprobs[j]))
}

func (e *Explanation) turnBytes(turn int) []byte {
	t := e.tr.Turns[turn]
	return e.tokenizer.Decode(e.tr.TokenIDs[t.TokenStart:t.TokenEnd])
}

// assistantTurn is the place of Turns[turn] among the policy's turns, from 0.
func assistantTurn(tr *episode.Trajectory, turn int) int {
	n := -1
	for _, t := range tr.Turns[:turn+1] {
		if t.Role == episode.RoleAssistant {
			n++
		}
	}
	return max(n, 0)
}

// paperRow names the row of the paper's table, or the list, that a kind belongs to.
var paperRow = map[string]string{
	episode.KindMalformedJSON:      "Malformed JSON",
	episode.KindUnclosedCall:       "Malformed JSON",
	episode.KindArgumentsNotObject: "Malformed JSON",
	episode.KindUnknownTool:        "Invalid tool call",
	episode.KindMissingArgument:    "Wrong argument",
	episode.KindUnexpectedArgument: "Wrong argument",
	episode.KindArgumentType:       "Wrong argument",
	episode.KindArgumentValue:      "Wrong argument",
	episode.KindRuntimeError:       "Runtime error",
	episode.KindBudgetExhausted:    "Budget exhausted",
}

// WriteText prints the explanation for people.
func (e *Explanation) WriteText(w io.Writer) error {
	b := bufio.NewWriter(w)
	tr, c := e.tr, e.tr.Credit
	line := func(format string, arguments ...any) { fmt.Fprintf(b, format+"\n", arguments...) }

	line("trajectory %s", tr.TrajectoryID)
	line("  group %s, sample %d of %d, step %d, policy version %d, temperature %g", tr.GroupID, tr.Sample, tr.GroupSize, tr.Step, tr.PolicyVersion, tr.Temperature)
	line("  task %s, level %d, of environment %s (%s, %s, %s)", tr.TaskID, tr.Level, tr.EnvironmentID, tr.Domain, tr.Family, tr.Split)
	line("  finish_reason %s, reward %g", tr.FinishReason, tr.Reward)

	for t := range tr.Turns {
		e.writeTurn(b, t)
	}

	line("")
	e.writeFailure(b)
	line("b = 1 on %d of %d tokens (sampled); m = 1 on %d of them (trained)", e.TokensSampled, len(tr.TokenIDs), e.TokensTrained)
	e.writeBlame(b)

	line("")
	line("returns of the group: %s   (* abnormal, - left out, > this one)", e.returns())
	if tr.Reward != c.Return && !e.LeftOut {
		if e.Abnormal {
			line("observed reward %g, set to %g", tr.Reward, c.Return)
		} else {
			line("observed reward %g, return %g", tr.Reward, c.Return)
		}
	}
	if e.LeftOut {
		line("left out of the baseline and of the loss: advantage null, m = 0")
	} else {
		line("B_x: %s", e.baselineText(e.settings, c.Baseline))
		line("advantage = %s", advantageText(c.Return, c.Baseline, *c.Advantage, e.settings))
		line("weight of each trained token %.6g (norm %s, %d groups a step); times advantage %.6g", c.Weight, e.settings.NormText(), max(1, e.settings.GroupsPerStep), c.Weight**c.Advantage)
		if !HasSignal(tr) {
			line("this row carries no signal: %s", e.whySilent())
		}
	}

	line("")
	e.writeGRPO(b)
	line("")
	return b.Flush()
}

// writeTurn prints one turn, with C_i and the culprit marked beneath the text.
func (e *Explanation) writeTurn(b *bufio.Writer, t int) {
	tr, c, turn := e.tr, e.tr.Credit, e.tr.Turns[t]
	sampled := Count(tr.LossMask[turn.TokenStart:turn.TokenEnd])
	trained := Count(c.CreditMask[turn.TokenStart:turn.TokenEnd])
	fmt.Fprintf(b, "\nturn %d %s, tokens [%d, %d)", t, turn.Role, turn.TokenStart, turn.TokenEnd)
	if turn.Role == episode.RoleAssistant {
		fmt.Fprintf(b, ", policy turn %d, %d sampled, %d trained, stop_reason %s", assistantTurn(tr, t), sampled, trained, turn.StopReason)
	}
	if turn.ObservationError {
		b.WriteString(", an error")
	}
	if len(tr.Failures) > 0 && tr.Failures[0].Turn == t {
		b.WriteString("   <-- e_t, t* = this turn")
	}
	b.WriteByte('\n')
	for _, call := range turn.Calls {
		fmt.Fprintf(b, "  call %s, tokens [%d, %d): %s\n", call.Name, call.TokenStart, call.TokenEnd, call.Outcome)
	}

	text := e.turnBytes(t)
	marks := make([]byte, len(text)+1) // the last one stands for the end of the text
	if len(tr.Failures) > 0 && tr.Failures[0].Turn == t {
		f := tr.Failures[0]
		offsets := e.tokenizer.Offsets(tr.TokenIDs[turn.TokenStart:turn.TokenEnd])
		span := c.ErrorSpan
		for j := max(span.TokenStart, turn.TokenStart); j < min(span.TokenEnd, turn.TokenEnd); j++ {
			for p := offsets[j-turn.TokenStart]; p < offsets[j-turn.TokenStart+1]; p++ {
				marks[p] = '~'
			}
		}
		for p := f.ByteStart; p < max(f.ByteEnd, f.ByteStart+1); p++ { // one mark for a zero width
			if p >= 0 && p < len(marks) {
				marks[p] = '^'
			}
		}
	}
	writeMarked(b, text, marks)
}

// writeMarked prints text line by line; under a line that has marks stands a
// line of them. Bytes that cannot be shown are escaped.
func writeMarked(b *bufio.Writer, text, marks []byte) {
	var shown, under strings.Builder
	flush := func() {
		fmt.Fprintf(b, "  | %s\n", shown.String())
		if u := strings.TrimRight(under.String(), " "); u != "" {
			fmt.Fprintf(b, "  | %s\n", u)
		}
		shown.Reset()
		under.Reset()
	}
	put := func(s string, mark byte) {
		if mark == 0 {
			mark = ' '
		}
		shown.WriteString(s)
		for range utf8.RuneCountInString(s) {
			under.WriteByte(mark)
		}
	}
	for p := 0; p < len(text); {
		r, size := utf8.DecodeRune(text[p:])
		mark := slices.Max(marks[p : p+size]) // '~' beats '^', so look for the culprit too
		if slices.Contains(marks[p:p+size], '^') {
			mark = '^'
		}
		switch {
		case r == '\n':
			if mark != 0 {
				put(`\n`, mark)
			}
			flush()
		case r == utf8.RuneError && size == 1:
			put(fmt.Sprintf(`\x%02x`, text[p]), mark)
		case !unicode.IsPrint(r):
			put(strings.Trim(fmt.Sprintf("%+q", r), "'"), mark)
		default:
			put(string(r), mark)
		}
		p += size
	}
	if marks[len(text)] != 0 {
		put(" ", marks[len(text)])
	}
	if shown.Len() > 0 {
		flush()
	}
}

func (e *Explanation) writeFailure(b *bufio.Writer) {
	if e.Failure == nil {
		if e.LeftOut {
			fmt.Fprintf(b, "failure: none recorded; the episode was %s\n", e.tr.FinishReason)
		} else {
			b.WriteString("failure: none; the trajectory is clean\n")
		}
		return
	}
	f, c := e.Failure, e.tr.Credit
	row, ok := paperRow[f.Kind]
	if !ok {
		row = "anomaly"
	}
	fmt.Fprintf(b, "failure: %s (%s), the fault of the %s, in turn t* = %d (policy turn %d)\n", f.Kind, row, f.Fault, e.tr.Failures[0].Turn, f.Turn)
	if f.Detail != "" {
		fmt.Fprintf(b, "  %s\n", f.Detail)
	}
	switch {
	case e.LeftOut:
	case c.ResponsibleTurn < 0:
		b.WriteString("  counted as an ordinary return of 0 (budget zero): no error span\n")
	default:
		fmt.Fprintf(b, "error span C_i (span %s, mask %s): tokens [%d, %d)\n", e.settings.Span, e.settings.Mask, c.ErrorSpan.TokenStart, c.ErrorSpan.TokenEnd)
	}
	fmt.Fprintf(b, "culprit: bytes [%d, %d) of the turn, %q; tokens %s\n", f.ByteStart, f.ByteEnd, f.Text, tokenRange(f.Tokens))
	for _, also := range e.Also {
		fmt.Fprintf(b, "also: %s, the fault of the %s, in policy turn %d, %q (not charged)\n", also.Kind, also.Fault, also.Turn, also.Text)
	}
}

func tokenRange(tokens []BlamedToken) string {
	if len(tokens) == 0 {
		return "none"
	}
	return fmt.Sprintf("[%d, %d)", tokens[0].Index, tokens[len(tokens)-1].Index+1)
}

// blameEnds is how many of the blamed tokens are listed at either end.
const blameEnds = 8

// notSampled tells whether the turns come from a solution: no sampled token has
// a log-probability other than 0.
func (e *Explanation) notSampled() bool {
	for j, b := range e.tr.LossMask {
		if b == 1 && j < len(e.tr.RolloutLogprobs) && e.tr.RolloutLogprobs[j] != 0 {
			return false
		}
	}
	return true
}

// writeBlame lists the trained tokens of an abnormal trajectory, of many the
// first and the last.
func (e *Explanation) writeBlame(b *bufio.Writer) {
	if !e.Abnormal || e.TokensTrained == 0 {
		return
	}
	f := e.tr.Failures[0]
	b.WriteString("   token      id  probability  text\n")
	certain := true
	var rows []string
	for j, m := range e.tr.Credit.CreditMask {
		inCulprit := j >= f.TokenStart && j < f.TokenEnd
		if m == 0 && !inCulprit {
			continue
		}
		t := e.blamed(j)
		note := ""
		if inCulprit {
			note = "  culprit"
		}
		if m == 0 {
			note += ", not trained"
		} else if t.Probability <= CertainProbability {
			certain = false
		}
		rows = append(rows, fmt.Sprintf("  %6d  %6d  %11.4f  %q%s\n", j, t.ID, t.Probability, t.Text, note))
	}
	for i, row := range rows {
		if left := len(rows) - 2*blameEnds; left > 1 && i >= blameEnds && i < blameEnds+left {
			if i == blameEnds {
				fmt.Fprintf(b, "  ... %d more\n", left)
			}
			continue
		}
		b.WriteString(row)
	}
	switch {
	case e.notSampled():
		b.WriteString("not sampled by a policy: the probabilities say nothing\n")
	case certain:
		fmt.Fprintf(b, "warning: every blamed token was sampled with a probability above %.2f; there is next to no gradient in them\n", CertainProbability)
	}
}

// returns lists the group in the order of samples.
func (e *Explanation) returns() string {
	rows := slices.Clone(e.group)
	slices.SortStableFunc(rows, func(a, b *episode.Trajectory) int { return a.Sample - b.Sample })
	var out []string
	for _, tr := range rows {
		text := "-"
		if r, err := judge(tr, e.settings); err == nil && !r.out {
			text = fmt.Sprintf("%g", tr.Credit.Return)
			if r.abnormal {
				text += "*"
			}
		}
		if tr == e.tr {
			text = ">" + text
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func (e *Explanation) baselineText(s Settings, b episode.Baseline) string {
	set := map[string]string{"clean": "the clean rows", "all": "all live rows", "others": "the other live rows", "none": "no rows"}[s.Baseline]
	if s.Baseline == "clean" {
		clean := 0
		for _, tr := range e.group {
			if r, err := judge(tr, s); err == nil && !r.out && !r.abnormal {
				clean++
			}
		}
		switch {
		case s.Fallback == "batch" && e.Abnormal && (clean != b.Size || clean == 0):
			set = "the clean rows of the other groups of this family in the step"
		case clean == 0:
			set = "no clean row, so all abnormal rows"
		}
	}
	text := fmt.Sprintf("%s, size %d, mu = %.6g, sigma = %.6g (%s)", set, b.Size, b.Mean, b.Std, s.Sigma)
	if b.Degenerate {
		text += ", degenerate: no division"
	}
	return text
}

func advantageText(ret float64, b episode.Baseline, advantage float64, s Settings) string {
	text := fmt.Sprintf("%.6g - %.6g", ret, b.Mean)
	plain := ret - b.Mean
	if s.Sigma != "none" && !b.Degenerate {
		text = fmt.Sprintf("(%s) / (%.6g + %g)", text, b.Std, Epsilon)
		plain /= b.Std + Epsilon
	}
	text += fmt.Sprintf(" = %.6g", plain)
	if plain != advantage {
		text += fmt.Sprintf(", clamped to %.6g", advantage)
	}
	return text
}

func (e *Explanation) whySilent() string {
	if e.TokensTrained == 0 {
		return "no token has m = 1"
	}
	return "the advantage is 0"
}

// writeGRPO says what plain GRPO would have done to the same tokens.
func (e *Explanation) writeGRPO(b *bufio.Writer) {
	g := e.GRPO
	if g.Advantage == nil {
		b.WriteString("plain GRPO: the row is left out there too\n")
		return
	}
	fmt.Fprintf(b, "plain GRPO: B_x: %s\n", e.baselineText(e.plain, g.Baseline))
	fmt.Fprintf(b, "  advantage = %s\n", advantageText(e.Return, g.Baseline, *g.Advantage, e.plain))
	fmt.Fprintf(b, "  on all %d sampled tokens, each with weight times advantage %.6g\n", g.TokensTrained, g.weight**g.Advantage)
	if !e.Abnormal {
		return
	}
	start := e.tr.Turns[e.tr.Failures[0].Turn].TokenStart
	before := Count(e.tr.LossMask[:start])
	push := "pushed down"
	if *g.Advantage == 0 {
		push = "left alone, as its advantage is 0"
	}
	if before > 0 {
		fmt.Fprintf(b, "  the %d sampled tokens of the turns before t* would be %s; here %d of them are trained\n", before, push, Count(e.tr.Credit.CreditMask[:start]))
	}
}
