package objectstore

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// ProbeConditions checks with an object under prefix that the store honors the conditions of a Put. A store that ignores
// them lets two writers overwrite each other's state unnoticed: the invalid_argument error names the ignored condition.
func ProbeConditions(ctx context.Context, store Store, prefix string) (err error) {
	key := prefix + rand.Text()
	defer func() { err = errors.Join(err, store.Delete(context.WithoutCancel(ctx), key)) }()
	put := func(text string, cond Condition) (string, error) {
		return store.Put(ctx, key, Content{Reader: strings.NewReader(text), Size: int64(len(text))}, cond)
	}
	ignored := func(condition string) error {
		return schemas.Errorf(schemas.CodeInvalidArgument,
			"store: the server ignores %s, so two writers could overwrite each other's work: use another store, or set single-writer "+
				"if nothing else writes here", condition)
	}
	first, err := put("1", Condition{Absent: true})
	if errors.Is(err, schemas.ErrConflict) {
		// A retried request whose first attempt took place.
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
