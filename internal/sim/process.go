package sim

import "time"

// process is something that can crash, and be stopped for a while.
type process struct {
	c    *cluster
	name string
	dead bool
	// paused processes let what comes to them wait in mail.
	paused bool
	mail   []func()
	// doomed: it will be dead as soon as the call of the store returns.
	doomed bool
	// onDeath cleans up after a crash in the middle of I/O.
	onDeath func()
}

// do carries something out in the process: now, or when it wakes; never when
// it is dead.
func (p *process) do(f func()) {
	switch {
	case p.dead:
	case p.paused:
		p.mail = append(p.mail, f)
	default:
		f()
	}
}

// after is do, later.
func (p *process) after(delay time.Duration, label string, f func()) {
	p.c.after(delay, label, func() { p.do(f) })
}

// resume lets a paused process go on with all that has waited.
func (p *process) resume() {
	p.paused = false
	mail := p.mail
	p.mail = nil
	for _, f := range mail {
		p.do(f)
	}
}

// io carries out calls of the store some time from now and gives what comes
// of them to the process some time later. A process that dies in between
// never hears of what it did.
func (p *process) io(label string, call func() (result func())) {
	p.c.after(p.c.storeDelay(), label, func() { p.do(func() { p.callStore(label, call) }) })
}

// callStore carries out calls of the store now.
func (p *process) callStore(label string, call func() (result func())) {
	outer := p.c.storage.caller
	p.c.storage.caller = p
	result := call()
	p.c.storage.caller = outer
	if p.doomed && !p.dead {
		p.c.trace.add("%s dies in %s", p.name, label)
		p.onDeath()
		return
	}
	p.after(p.c.between(0, p.c.options.StoreMax/2), label, result)
}
