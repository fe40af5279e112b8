package trace

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// maxReports is more processes than a job of one node has; each leaves at most two reports.
const maxReports = 2048

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,95}$`)

// PlainName says that a name in a report is one of a library, a class or a function.
func PlainName(name string) bool { return plainName.MatchString(name) }

// UnmarshalReport reads what a user's process reported into v, whose field at schema has to name the wanted form then.
func UnmarshalReport(data []byte, v any, schema *string, wanted string) error {
	if err := json.Unmarshal(data, v); err != nil {
		return err
	}
	if *schema != wanted {
		return fmt.Errorf("schema: %.40q, want %q", *schema, wanted)
	}
	return nil
}

// ReadReports reads the files of a report directory, which a user's processes wrote, whose names match: use gets the
// submatches of the name and the content. Others are passed over. An error names the file.
func ReadReports(dir string, name *regexp.Regexp, limit int64, use func(match []string, data []byte) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reports: %w", err)
	}
	read := 0
	for _, entry := range entries {
		match := name.FindStringSubmatch(entry.Name())
		if match == nil {
			continue
		}
		if read++; read > maxReports {
			return fmt.Errorf("reports: more than %d files", maxReports)
		}
		data, err := ReadRegular(filepath.Join(dir, entry.Name()), limit)
		if err == nil {
			err = use(match, data)
		}
		if err != nil {
			return fmt.Errorf("reports: %s: %w", entry.Name(), err)
		}
	}
	return nil
}
