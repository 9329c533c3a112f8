package events

// turns holds queues, and gives each tenant its turn: one after the other, however many queues each has. A tenant's own come in order.
type turns struct {
	order   []string // the tenants that have some, the next one first
	waiting map[string][]*threadQueue
}

func newTurns() turns { return turns{waiting: make(map[string][]*threadQueue)} }

func (t *turns) push(q *threadQueue) {
	tenant := q.name.tenant
	if len(t.waiting[tenant]) == 0 {
		t.order = append(t.order, tenant)
	}
	t.waiting[tenant] = append(t.waiting[tenant], q)
}

// pop removes the next queue, nil when there is none.
func (t *turns) pop() *threadQueue {
	if len(t.order) == 0 {
		return nil
	}
	tenant := t.order[0]
	t.order = t.order[1:]
	q := t.waiting[tenant][0]
	if t.waiting[tenant] = t.waiting[tenant][1:]; len(t.waiting[tenant]) == 0 {
		delete(t.waiting, tenant)
	} else {
		t.order = append(t.order, tenant)
	}
	return q
}
