package client

// HoldShared takes all shared pieces of content until release is called.
func (c *Client) HoldShared() (release func()) {
	var held []*piece
	for p := c.shared.take(); p != nil; p = c.shared.take() {
		held = append(held, p)
	}
	return func() {
		for _, p := range held {
			c.shared.give(p)
		}
	}
}

// SharedTaken is how many shared pieces transfers hold.
func (c *Client) SharedTaken() int { return len(c.shared.taken) }
