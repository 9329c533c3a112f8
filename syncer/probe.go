package syncer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// probe finds out, before this folder's first push to a place, whether the store heeds conditions. One that ignores
// them lets two writers overwrite each other's state unnoticed.
func (x *session) probe(ctx context.Context, was *snapshot) error {
	if x.cfg.SingleWriter || x.probed || was.token != "" && x.index.remote == x.cfg.Remote {
		return nil
	}
	if err := ProbeConditions(ctx, x.store); err != nil {
		return err
	}
	x.probed = true
	return nil
}

// ProbeConditions is nil when the store heeds the conditions of a Put, and else an invalid_argument error that says
// which one it ignores.
func ProbeConditions(ctx context.Context, store Store) (err error) {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails: see crypto/rand
	key := probePrefix + hex.EncodeToString(random[:])
	defer func() { err = joined(errors.Join(err, store.Delete(context.WithoutCancel(ctx), key))) }()
	put := func(text string, cond Condition) (string, error) {
		return store.Put(ctx, key, Content{Reader: strings.NewReader(text), Size: int64(len(text))}, cond)
	}
	ignored := func(condition string) error {
		return schemas.Errorf(schemas.CodeInvalidArgument,
			"store: it ignores %s, so that two writers would overwrite each other's work unnoticed; "+
				"say single-writer if nobody else writes here", condition)
	}
	first, err := put("1", Condition{Absent: true})
	if errors.Is(err, schemas.ErrConflict) {
		// A repeated request that had gone through the first time.
		var info Info
		if info, err = store.Stat(ctx, key); err == nil {
			first = info.Token
		}
	}
	if err != nil {
		return err
	}
	if _, err = put("2", Condition{Absent: true}); err == nil {
		return ignored("If-None-Match")
	} else if !errors.Is(err, schemas.ErrConflict) {
		return err
	}
	if _, err = put("3", Condition{}); err != nil {
		return err
	}
	if _, err = put("4", Condition{Match: first}); err == nil {
		return ignored("If-Match")
	} else if !errors.Is(err, schemas.ErrConflict) {
		return err
	}
	return nil
}
