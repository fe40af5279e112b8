package batch

import (
	"fmt"
	"strings"
)

const (
	directive = "#SBATCH"
	blanks    = " \t\r\v\f"
)

// HasDirectives says that sbatch would read options out of the script.
func HasDirectives(script []byte) bool {
	words, err := Directives(script)
	return err != nil || len(words) > 0
}

// Directives are the words of the #SBATCH lines of a script, as sbatch reads them: up to the first line that is neither empty nor a comment, with quotes,
// escapes and comments of their own. Of a heterogeneous job they are those of its first part. An error begins with the number of its line.
func Directives(script []byte) (words []string, err error) {
	number := 0
	for line := range strings.Lines(string(script)) {
		number++
		line = strings.TrimSuffix(line, "\n")
		rest, ours := strings.CutPrefix(line, directive)
		switch text := strings.TrimLeft(line, blanks); {
		case !ours && (text == "" || text[0] == '#'):
			continue
		case !ours:
			return words, nil
		}
		first := strings.ToLower(strings.TrimLeft(rest, blanks))
		for _, word := range []string{"hetjob", "packjob"} {
			if after, ok := strings.CutPrefix(first, word); ok && strings.TrimLeft(after, blanks) == "" {
				return words, nil
			}
		}
		found, err := splitWords(rest)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", number, err)
		}
		words = append(words, found...)
	}
	return words, nil
}

// splitWords splits a line as sbatch does (get_argument in src/sbatch/opt.c): both quotes, a backslash before any byte, and a comment from an unquoted # on.
func splitWords(line string) (words []string, err error) {
	var word strings.Builder
	begun, quote := false, byte(0)
	end := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && i+1 < len(line):
			i++
			begun = true
			word.WriteByte(line[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, begun = c, true
		case quote == 0 && strings.IndexByte(blanks, c) >= 0:
			end()
		case quote == 0 && c == '#':
			end()
			return words, nil
		default:
			begun = true
			word.WriteByte(c)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("an opening %c without a closing one", quote)
	}
	end()
	return words, nil
}
