package schemas

// SealKey is the key with which callers seal the commands that wait in CMD. The state bucket has it under "seal"; without it, commands are
// stored as they are.
type SealKey struct {
	// ID is the first 16 hex digits of the SHA-256 of Public. A sealed command names it in the header Sluice-Sealed.
	ID string `json:"id"`
	// Public is a public key of X25519, 32 bytes.
	Public []byte `json:"public"`
}
