package request

import (
	"slices"
	"strings"
)

// MergeFeatures puts the constraint ours onto what the owner wrote. Terms of the owner that are among
// own (the features that the site's table uses to tell GPU sizes apart) are replaced, because they say
// the same thing; everything else the owner wrote is kept. It refuses what it cannot change with
// certainty: brackets, counts, commas, and expressions that would need nested parentheses, which
// the controller rejects.
func MergeFeatures(user, ours string, own map[string]bool) (string, error) {
	user = strings.TrimSpace(user)
	if ours == "" {
		return user, nil
	}
	if user == "" || user == "(null)" {
		return ours, nil
	}
	if i := strings.IndexAny(user, "[]*,\"' \t"); i >= 0 {
		return "", refuse(CodeConstraint, "the constraint %.200q uses %q, which is left alone", user, user[i:i+1])
	}
	if !strings.ContainsAny(user, "()") {
		if strings.Contains(user, "|") && strings.Contains(user, "&") {
			return "", refuse(CodeConstraint, "the constraint %.200q mixes & and | without parentheses, which is left alone", user)
		}
		if alternatives := strings.Split(user, "|"); len(alternatives) > 1 && allOwn(alternatives, own) {
			return ours, nil
		}
		if strings.Contains(user, "|") {
			return "(" + user + ")&(" + ours + ")", nil
		}
	}
	terms, alternative, ok := splitAnd(user)
	if !ok {
		return "", refuse(CodeConstraint, "the parentheses of the constraint %.200q do not match", user)
	}
	if alternative {
		return "", refuse(CodeConstraint, "the constraint %.200q would need nested parentheses", user)
	}
	kept := make([]string, 0, len(terms)+1)
	for _, t := range terms {
		inner := strings.Split(strings.TrimSuffix(strings.TrimPrefix(t, "("), ")"), "|")
		if t == "" {
			return "", refuse(CodeConstraint, "the constraint %.200q has an empty term", user)
		}
		if t != ours && !allOwn(inner, own) {
			kept = append(kept, t)
		}
	}
	if len(kept) > 0 && strings.ContainsAny(ours, "|") && !strings.ContainsAny(ours, "()") {
		ours = "(" + ours + ")"
	}
	return strings.Join(append(kept, ours), "&"), nil
}

// FeatureTerms lists the plain words of a constraint; ok is false when the expression is more than
// words joined by & and |, so that nothing can be concluded from the words.
func FeatureTerms(expression string) (terms []string, alternatives, ok bool) {
	if expression == "" || expression == "(null)" {
		return nil, false, true
	}
	and, or := strings.Contains(expression, "&"), strings.Contains(expression, "|")
	if strings.ContainsAny(expression, "[]*,()\"' \t") || and && or {
		return nil, false, false
	}
	terms = strings.FieldsFunc(expression, func(r rune) bool { return r == '&' || r == '|' })
	return terms, or, true
}

// Conjuncts reads a constraint as a list of groups of which a node has to have one word each: ib&(a100|h100) is [ib] and [a100 h100]. ok is false for
// what is more than that (brackets, counts, commas, nested parentheses, & and | in one group), of which nothing can be concluded.
func Conjuncts(expression string) (groups [][]string, ok bool) {
	if expression == "" || expression == "(null)" {
		return nil, true
	}
	if strings.ContainsAny(expression, "[]*,\"' \t") {
		return nil, false
	}
	terms, alternative, ok := splitAnd(expression)
	if !ok || alternative && len(terms) > 1 {
		return nil, false
	}
	for _, term := range terms {
		inner, parenthesised := strings.CutPrefix(term, "(")
		if parenthesised {
			inner = strings.TrimSuffix(inner, ")")
		}
		if inner == "" || strings.ContainsAny(inner, "()") || strings.Contains(inner, "&") && strings.Contains(inner, "|") {
			return nil, false
		}
		if strings.Contains(inner, "&") {
			for word := range strings.SplitSeq(inner, "&") {
				groups = append(groups, []string{word})
			}
			continue
		}
		groups = append(groups, strings.Split(inner, "|"))
	}
	for _, group := range groups {
		if slices.Contains(group, "") {
			return nil, false
		}
	}
	return groups, true
}

func allOwn(words []string, own map[string]bool) bool {
	for _, w := range words {
		if !own[w] {
			return false
		}
	}
	return true
}

// splitAnd splits at the & outside parentheses and reports whether a | stands outside them.
func splitAnd(s string) (terms []string, alternative, ok bool) {
	depth, start := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			if depth++; depth > 1 {
				return nil, false, false
			}
		case ')':
			if depth--; depth < 0 {
				return nil, false, false
			}
		case '&':
			if depth == 0 {
				terms, start = append(terms, s[start:i]), i+1
			}
		case '|':
			alternative = alternative || depth == 0
		}
	}
	return append(terms, s[start:]), alternative, depth == 0
}
