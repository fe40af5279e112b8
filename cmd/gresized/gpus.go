package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/slurm/request"
)

// gpus ties the site's words for GPUs to profiles.
type gpus struct {
	byWord   map[string]*gpu.Profile
	fallback *gpu.Profile
}

// newGPUs loads every profile that the configuration names.
func newGPUs(c *config.Config) (*gpus, error) {
	g := &gpus{byWord: map[string]*gpu.Profile{}}
	load := func(field, name string) (*gpu.Profile, error) {
		profile, err := gpu.Load(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w; `gresize gpu list` shows the profiles", field, err)
		}
		return profile, nil
	}
	for word, entry := range c.GPU {
		profile, err := load("gpu."+word+".profile", entry.Profile)
		if err != nil {
			return nil, err
		}
		g.byWord[word] = profile
	}
	var err error
	g.fallback, err = load("default_profile", c.DefaultProfile)
	return g, err
}

// profileOf is the profile on which a request is probed: that of its GPU type, or of one of its features, or the default.
func (g *gpus) profileOf(asked request.Request) string {
	for _, ask := range asked.Asks() {
		if p, ok := g.byWord[ask.Type]; ok {
			return p.ID
		}
	}
	terms, _, _ := request.FeatureTerms(asked.Features)
	for _, term := range terms {
		if p, ok := g.byWord[term]; ok {
			return p.ID
		}
	}
	return g.fallback.ID
}

// card is what a row holds and the profile of its card. It holds what the file says, and never more than the cards have that its words are
// tied to: a card that is sold as 12 GB shows less. The profile is empty when the words name no card, or different ones.
func (g *gpus) card(t config.Target) (fitsBytes int64, profile string) {
	fitsBytes = int64(t.Fits)
	words, _, _ := request.FeatureTerms(t.Constraint)
	for _, e := range request.ParseList(t.Gres) {
		words = append(words, e.Type)
	}
	several := false
	for _, word := range words {
		if p, ok := g.byWord[word]; ok {
			fitsBytes = min(fitsBytes, p.Total.Bytes)
			several = several || profile != "" && profile != p.ID
			profile = p.ID
		}
	}
	if several {
		profile = ""
	}
	return fitsBytes, profile
}

// slice says whether a row gives a part of a card.
func (g *gpus) slice(t config.Target) bool {
	words, _, _ := request.FeatureTerms(t.Constraint)
	for _, e := range request.ParseList(t.Gres) {
		words = append(words, e.Type)
	}
	return slices.ContainsFunc(words, func(word string) bool {
		p, ok := g.byWord[word]
		return ok && p.MIG != nil || sliceName.MatchString(word)
	})
}

// sliceName is what Slurm's own detection names a MIG device, whatever the card: a100_3g.20gb.
var sliceName = regexp.MustCompile(`(^|[-_])[1-7]g\.[0-9]+gb`)

func (g *gpus) rules(c *config.Config) policy.Rules {
	r := policy.Rules{MarginPercent: c.Policy.MarginPercent, MarginMinBytes: int64(c.Policy.MarginMin), Upsizing: c.Policy.Upsizing,
		ShardBytes: int64(c.Shard.Per), ShardMax: c.Shard.Max, Own: c.OwnFeatures(), Cards: map[string]policy.Card{}}
	for _, level := range c.Policy.ActOn {
		r.ActOn = append(r.ActOn, estimator.Confidence(level))
	}
	for _, t := range c.Targets {
		fits, profile := g.card(t)
		r.Rows = append(r.Rows, policy.Row{FitsBytes: fits, Profile: profile, Slice: g.slice(t), Target: request.Target{Gres: t.Gres, Constraint: t.Constraint}})
	}
	// A card that holds less than the file says may come before one that the file puts first.
	slices.SortStableFunc(r.Rows, func(a, b policy.Row) int { return cmp.Compare(a.FitsBytes, b.FitsBytes) })
	for word, p := range g.byWord {
		r.Cards[word] = policy.Card{Profile: p.ID, CapacityBytes: p.Total.Bytes}
	}
	return r
}
