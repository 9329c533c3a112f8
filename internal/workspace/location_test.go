package workspace

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/objectstore"
)

// Sync 11: ? and # are part of a location's path. They were cut off with all that follows, so that two locations were one.
func TestLocationHasQueryAndFragmentCharacters(t *testing.T) {
	dir := t.TempDir()
	for path, name := range map[string]string{"c#/x": "c#/x", "why?/x": "why?/x", "a%20b?c#d": "a b?c#d"} {
		l, err := new(Locations).Open(t.Context(), "file://"+dir+"/"+path, Options{})
		testkit.Must(t, err)
		testkit.Equal(t, "name", l.Name, "file://"+filepath.Join(dir, name))
		_, err = l.Store.Put(t.Context(), "f", objectstore.Bytes([]byte("1")), objectstore.Condition{})
		testkit.Must(t, err)
		testkit.Must(t, l.Close())
		if _, err := os.Stat(filepath.Join(dir, name, "f")); err != nil {
			t.Error(err)
		}
		l, err = new(Locations).Open(t.Context(), "s3://bucket/"+path, Options{})
		testkit.Must(t, err)
		testkit.Equal(t, "name", l.Name, "s3://bucket/"+name)
	}
	for _, no := range []string{"s3://bucket?region=x", "s3://bucket#x", "file:///100%", "s3:///x", "bucket/x"} {
		if _, err := new(Locations).Open(t.Context(), no, Options{}); err == nil {
			t.Errorf("%s was accepted", no)
		}
	}
}
