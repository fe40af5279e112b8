package plot

import (
	"bytes"
	"html/template"
	"io"

	"github.com/gresize/gresize/internal/printable"
)

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title>
<style>body{font-family:sans-serif;max-width:1060px;margin:1em auto;color:#202020}svg{max-width:100%;height:auto}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;text-align:left;border-bottom:1px solid #ccc}td.n{text-align:right;font-variant-numeric:tabular-nums}</style>
</head><body>
{{.Picture}}
<h2>What holds the memory at the peak</h2>
<table><tr><th>Category</th><th>Owner</th><th>Size</th><th>Blocks</th></tr>
{{range .Owners}}<tr><td>{{.Category}}</td><td>{{.Name}}</td><td class="n">{{.Size}}</td><td class="n">{{.Blocks}}</td></tr>
{{end}}</table>
<h2>What the categories are</h2>
<table>{{range .Bands}}<tr><td>{{.Name}}</td><td>{{.Explain}}</td></tr>
{{end}}</table>
</body></html>
`))

// pageOwners is how many owners the table of a page has.
const pageOwners = 100

type pageBand struct{ Name, Explain string }

// HTML writes a page with the picture and its figures; it needs nothing from elsewhere.
func HTML(w io.Writer, f *Figure) error {
	var picture bytes.Buffer
	if err := SVG(&picture, f); err != nil {
		return err
	}
	content := struct {
		Title   string
		Picture template.HTML
		Owners  []OwnerLine
		Bands   []pageBand
	}{Title: printable.Text(f.Title), Owners: f.Owners(pageOwners), Picture: template.HTML(picture.String())} // #nosec G203 -- all text in it was escaped when it was drawn
	for _, n := range f.shown() {
		content.Bands = append(content.Bands, pageBand{look(n).name, look(n).explain})
	}
	return page.Execute(w, content)
}
