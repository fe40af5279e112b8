package rewrites

import (
	"fmt"
	"strings"

	"github.com/gresize/gresize/slurm/request"
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

// Title is the heading of a release's section.
func Title(version request.Version) string { return fmt.Sprintf("## Slurm %s\n", version) }

// Markdown prints the rows as the section of a release.
func Markdown(version request.Version, rows []Row) string {
	var b strings.Builder
	b.WriteString(Title(version))
	b.WriteString("\n| asked | target | outcome | dropped | sent | taken back | the job asks for | srun | the job sees |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", code(r.Asked), r.Target, cell(r.Outcome), code(r.Dropped), code(r.Sent), cell(r.Undone), code(r.Job), cell(r.Srun), code(r.Environment))
	}
	return b.String()
}

// Section cuts the section of a release out of the page; empty: there is none.
func Section(page string, version request.Version) string {
	_, rest, found := strings.Cut(page, Title(version))
	if !found {
		return ""
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return Title(version) + strings.TrimRight(rest, "\n") + "\n"
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
