package rewrites

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gresize/gresize/slurm/release"
)

// Head is the text before the sections of docs/rewrites.md.
const Head = `# Rewrites on real clusters

What becomes of a pending job when gresize moves it to another resource, for each spelling of a GPU request and each kind of target, on a real
` + "`slurmctld`" + ` of each release with the plugin. Each row was run: the job was held by the plugin, changed by one ` + "`scontrol --uid=OWNER update`" + `,
given its own request back, changed again, released, and looked at while it ran. ` + "`left alone`" + ` rows were not changed; the code says why (it is the
code in the decision log). Printed by ` + "`tools/slurmroot/rewrites`" + `; ` + "`make nightly`" + ` finds the same again.

Targets: constraint ` + "`gpu12g`" + `, type ` + "`gpu:small:1`" + `, MIG type ` + "`gpu:a100_3g.20gb:1`" + `, 10 shards, count-only ` + "`vram:12`" + `. *dropped* are
the variables that the plugin took out of the job's environment at submit; *taken back* says whether the second update gave the job its own request
again. Contradictions such as the type ` + "`big`" + ` with the constraint of another card are in the table on purpose, to show that such a job gets its own request
back; the policy never asks for them. *srun* is an srun without options inside the job. ` + "`SBATCH_…`" + ` in the first column is sbatch's own environment. Where a job that
asks for memory or CPUs by the GPU becomes one with shards, the plugin had it ask by the node at submit: no later update can.
`

// Found is what a release does.
type Found struct {
	Version release.Version
	Rows    []Row
}

// Page is docs/rewrites.md: what becomes of a job on each release, and then the rows whole. Releases that do the same have one section.
func Page(all []Found) string {
	var b strings.Builder
	b.WriteString(Head)
	b.WriteString("\n")
	b.WriteString(summary(all))
	var groups [][]Found
	for _, f := range all {
		if last := len(groups) - 1; last >= 0 && slices.Equal(groups[last][0].Rows, f.Rows) {
			groups[last] = append(groups[last], f)
		} else {
			groups = append(groups, []Found{f})
		}
	}
	for _, group := range groups {
		names := make([]string, len(group))
		for i, f := range group {
			names[i] = f.Version.String()
		}
		fmt.Fprintf(&b, "\n%s%s\n\n%s", heading, strings.Join(names, ", "), Markdown(group[0].Rows))
	}
	return b.String()
}

const heading = "## Slurm "

// summary has a column for each release.
func summary(all []Found) string {
	type key struct{ asked, target string }
	var keys []key
	cells := map[key][]string{}
	for column, f := range all {
		for _, r := range f.Rows {
			k := key{r.Asked, r.Target}
			if cells[k] == nil {
				keys = append(keys, k)
				cells[k] = make([]string, len(all))
			}
			cells[k][column] = r.short()
		}
	}
	var b strings.Builder
	b.WriteString("| asked | target |")
	for _, f := range all {
		fmt.Fprintf(&b, " %s |", f.Version)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(all)) + "\n")
	// In the order of the table, in which a release may be the first that has a row.
	position := map[string]int{}
	for i, s := range append(slices.Clone(Spellings), spellingsOfMPS...) {
		position[s.String()] = i
	}
	slices.SortStableFunc(keys, func(a, b key) int { return cmp.Compare(position[a.asked], position[b.asked]) })
	for _, k := range keys {
		fmt.Fprintf(&b, "| %s | %s |", code(k.asked), k.target)
		for _, text := range cells[k] {
			fmt.Fprintf(&b, " %s |", cell(text))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// short is the outcome in a word or two.
func (r Row) short() string {
	switch {
	case r.Outcome == Restored:
		return "restored"
	case r.Outcome == Unsaid:
		return "restored, late"
	case r.Outcome == Runs && r.Srun != sees:
		return "runs, srun: " + r.Srun
	}
	reason, leftAlone := strings.CutPrefix(r.Outcome, "left alone: ")
	if leftAlone {
		return "no: " + reason
	}
	return r.Outcome
}

// Markdown prints the rows.
func Markdown(rows []Row) string {
	var b strings.Builder
	b.WriteString("| asked | target | outcome | dropped | sent | taken back | the job asks for | srun | the job sees |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", code(r.Asked), r.Target, cell(r.Outcome), code(r.Dropped), code(r.Sent), cell(r.Undone), code(r.Job), cell(r.Srun), code(r.Environment))
	}
	return b.String()
}

// Read is what a page says of each release, the oldest first.
func Read(page string) []Found {
	var all []Found
	for _, section := range strings.Split(page, "\n"+heading)[1:] {
		title, text, _ := strings.Cut(section, "\n")
		var rows []Row
		for line := range strings.Lines(text) {
			cells := strings.Split(strings.TrimSpace(line), " |")
			if len(cells) != 10 || cells[0] == "| asked" || strings.HasPrefix(line, "|---") {
				continue
			}
			for i, c := range cells {
				cells[i] = strings.ReplaceAll(strings.Trim(strings.TrimSpace(strings.TrimPrefix(c, "|")), "`"), `\|`, "|")
			}
			rows = append(rows, Row{cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6], cells[7], cells[8]})
		}
		for _, name := range strings.Split(title, ", ") {
			if v, err := release.Parse(name); err == nil {
				all = append(all, Found{v, rows})
			}
		}
	}
	return all
}

// With puts what was found anew in the place of what was known of those releases.
func With(known, anew []Found) []Found {
	all := slices.DeleteFunc(slices.Clone(known), func(k Found) bool {
		return slices.ContainsFunc(anew, func(f Found) bool { return f.Version.Major == k.Version.Major && f.Version.Minor == k.Version.Minor })
	})
	all = append(all, anew...)
	slices.SortFunc(all, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Version.Major, b.Version.Major), cmp.Compare(a.Version.Minor, b.Version.Minor))
	})
	return all
}

// Section cuts the rows of a release out of the page, whatever its micro number; empty: there are none.
func Section(page string, version release.Version) string {
	release := fmt.Sprintf(" %02d.%02d.", version.Major, version.Minor)
	for _, section := range strings.Split(page, "\n"+heading)[1:] {
		if title, rows, _ := strings.Cut(section, "\n"); strings.Contains(" "+title, release) {
			return strings.TrimSpace(rows) + "\n"
		}
	}
	return ""
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + cell(s) + "`"
}

func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "`", "'").Replace(s)
}
