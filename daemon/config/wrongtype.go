package config

import "regexp"

// otherType is how the decoder words a value of another type than the key has.
var otherType = regexp.MustCompile(`^incompatible types: TOML value has type (\w+); destination has type (\w+)$`)

// written are the types of values in the words of who writes the file.
var written = map[string]string{"string": "a text", "int64": "a number", "float64": "a number with a fraction", "bool": "true or false", "slice": "a list", "map": "a table"}

// wanted are the types of keys, with an example of each.
var wanted = map[string]string{"string": `a text such as "shadow"`, "integer": "a whole number such as 10", "float": "a number such as 0.01", "boolean": "true or false",
	"slice": `a list such as ["alice"]`, "map": "a table in [brackets]"}

// typeProblem says what the decoder found without the words of the language that it is written in.
func typeProblem(problem string) string {
	m := otherType.FindStringSubmatch(problem)
	if m == nil || wanted[m[2]] == "" {
		return problem
	}
	if is := written[m[1]]; is != "" {
		return "wants " + wanted[m[2]] + ", and not " + is
	}
	return "wants " + wanted[m[2]]
}
