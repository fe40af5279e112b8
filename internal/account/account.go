// Package account asks the system who a user is. /etc/passwd is one of its
// sources; LDAP, SSSD and others are named in nsswitch.conf and are modules of
// the C library. They are asked through getent: programs of ours that have no C
// library see the same users as all others, no module runs in one of them, and
// a directory that does not answer costs a bounded time.
package account

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Getent is the program of the C library that asks its modules.
const Getent = "/usr/bin/getent"

// Limit bounds one question, or two that belong together: a directory may be far away, and whoever asks has others waiting.
const Limit = 3 * time.Second

const (
	// maxAnswerBytes is above a user in as many groups as Linux knows.
	maxAnswerBytes = 1 << 20
	// MaxGroups is what Linux lets a process be in (NGROUPS_MAX).
	MaxGroups = 65536
	// notFound is getent's exit status for a key that no source has.
	notFound = 2
)

// ErrUnknown says that no source of the system has the user.
var ErrUnknown = errors.New("the system knows no such user (`getent passwd` does not find one)")

// User is an entry of the database of users.
type User struct {
	Name, Home string
	UID, GID   uint32
}

// System is where users are looked up. The zero value is this machine.
type System struct {
	// Getent replaces the program, Limit the time.
	Getent string
	Limit  time.Duration
}

// ByID looks a user up by the number.
func ByID(uid uint32) (User, error) { return System{}.ByID(context.Background(), uid) }

// ByName looks a user up by the name.
func ByName(name string) (User, error) { return System{}.ByName(context.Background(), name) }

// ByID looks a user up by the number.
func (s System) ByID(ctx context.Context, uid uint32) (User, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.passwd(ctx, strconv.FormatUint(uint64(uid), 10), func(u User) bool { return u.UID == uid })
}

// ByName looks a user up by the name. A name of digits alone is none: getent takes it for a number.
func (s System) ByName(ctx context.Context, name string) (User, error) {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r == ':' || unicode.IsControl(r) }) {
		return User{}, ErrUnknown
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	// A directory may know the name in another case and answer with its own.
	return s.passwd(ctx, name, func(u User) bool { return strings.EqualFold(u.Name, name) })
}

// Member looks a user up by the number, and all groups that the user is in, each once.
func (s System) Member(ctx context.Context, uid uint32) (User, []uint32, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	u, err := s.ByID(ctx, uid)
	if err != nil {
		return User{}, nil, err
	}
	out, err := s.ask(ctx, "initgroups", u.Name)
	if err != nil {
		return User{}, nil, fmt.Errorf("the groups of user %q: %w", u.Name, err)
	}
	groups, err := parseGroups(u, out)
	return u, groups, err
}

func (s System) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := s.Limit
	if limit == 0 {
		limit = Limit
	}
	return context.WithTimeout(ctx, limit)
}

// passwd returns the one entry that getent finds for a key, if it is the one that was meant.
func (s System) passwd(ctx context.Context, key string, meant func(User) bool) (User, error) {
	out, err := s.ask(ctx, "passwd", key)
	if err != nil {
		return User{}, err
	}
	u, err := parsePasswd(out)
	if err != nil {
		return User{}, err
	}
	if !meant(u) {
		return User{}, ErrUnknown
	}
	return u, nil
}

// ask runs getent. The key is no option, whatever it begins with.
func (s System) ask(ctx context.Context, database, key string) ([]byte, error) {
	program := s.Getent
	if program == "" {
		program = Getent
	}
	command := exec.CommandContext(ctx, program, database, "--", key)
	command.Dir, command.Env = "/", []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
	out := &limited{}
	command.Stdout = out
	command.WaitDelay = 100 * time.Millisecond
	err := command.Run()
	var exit *exec.ExitError
	switch {
	case out.full:
		return nil, fmt.Errorf("getent %s: an answer of more than %d bytes", database, maxAnswerBytes)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("getent %s: no answer in time: is the directory of users (LDAP, SSSD) up?", database)
	case errors.As(err, &exit) && exit.ExitCode() == notFound:
		return nil, ErrUnknown
	case err != nil:
		return nil, fmt.Errorf("getent %s: %w", database, err)
	}
	return out.kept.Bytes(), nil
}

// parsePasswd reads one line of passwd(5).
func parsePasswd(out []byte) (User, error) {
	line, rest, whole := strings.Cut(string(out), "\n")
	fields := strings.Split(line, ":")
	if !whole || rest != "" || len(fields) != 7 || fields[0] == "" || strings.ContainsFunc(line, unicode.IsControl) {
		return User{}, fmt.Errorf("getent passwd: %.100q is no entry of a user", out)
	}
	uid, uidErr := strconv.ParseUint(fields[2], 10, 32)
	gid, gidErr := strconv.ParseUint(fields[3], 10, 32)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return User{}, fmt.Errorf("getent passwd: %w", err)
	}
	return User{Name: fields[0], Home: fields[5], UID: uint32(uid), GID: uint32(gid)}, nil
}

// parseGroups reads the name of the user, which may hold blanks, and the numbers behind it, to which the user's own group is added where it is missing.
func parseGroups(u User, out []byte) ([]uint32, error) {
	line, whole := strings.CutSuffix(string(out), "\n")
	numbers, ours := strings.CutPrefix(line, u.Name)
	if !ours || !whole || numbers != "" && numbers[0] != ' ' {
		return nil, fmt.Errorf("getent initgroups: %.100q is no list of the groups of %q", out, u.Name)
	}
	groups := []uint32{u.GID}
	for text := range strings.FieldsSeq(numbers) {
		gid, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("getent initgroups: group of %q: %w", u.Name, err)
		}
		groups = append(groups, uint32(gid))
	}
	slices.Sort(groups[1:])
	groups = slices.Compact(groups)
	if own := slices.Index(groups[1:], u.GID); own >= 0 {
		groups = slices.Delete(groups, own+1, own+2)
	}
	if len(groups) > MaxGroups {
		return nil, fmt.Errorf("user %q is in %d groups: Linux knows %d at most", u.Name, len(groups), MaxGroups)
	}
	return groups, nil
}

// limited takes what fits; the program that has more to say is ended by the pipe. The buffer is no part of its face: it would read without a bound.
type limited struct {
	kept bytes.Buffer
	full bool
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > maxAnswerBytes-l.kept.Len() {
		l.full = true
		return 0, errors.New("too much")
	}
	return l.kept.Write(p)
}
