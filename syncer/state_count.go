package syncer

import "github.com/sluice-dev/sluice/schemas"

// The most values that an entry of a state has: its fields, and one more for each object that a file lies in.
const valuesEach = 16

// countState refuses a state for what it would take to decode it, before anything of it is decoded. The bytes need not
// be JSON: what is no JSON is found out later.
func countState(data []byte, limits Limits) error {
	files, others, values := 0, 0, int64(0)
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		c := data[i]
		if inString {
			switch c {
			case '\\':
				i++
			case '"':
				inString = false
			}
			continue
		}
		switch c {
		case '"':
			inString = true
		case ',':
			values++
		case '{', '[':
			switch {
			case c == '[':
			case depth == 2: // {"files":[{
				files++
			case depth == 3: // {"sluice":{"objects":[{
				others++
			}
			depth++
		case '}', ']':
			depth--
		}
	}
	if files > limits.Entries {
		return schemas.Errorf(schemas.CodeTooLarge, "state: %d files, the limit is %d entries", files, limits.Entries)
	}
	// Folders, symlinks and paths to drop are entries; pending files are files, and every object has a file in it.
	if most := 3*limits.Entries + int(limits.TotalBytes/ChunkSize); others > most {
		return schemas.Errorf(schemas.CodeTooLarge, "state: %d folders, symlinks and objects, the limit is %d", others, most)
	}
	if most := int64(valuesEach)*int64(limits.Entries) + limits.TotalBytes/ChunkSize; values > most {
		return schemas.Errorf(schemas.CodeTooLarge, "state: %d values, the limit is %d", values, most)
	}
	return nil
}
