package example

type lock[T any] struct{ held bool }

func (l *lock[T]) take() bool {
	if l.held {
		return false
	}
	l.held = true
	return true
}

func (l lock[T]) isFree() bool { return !l.held }

func unused() bool {
	return true
}

func empty() {}

var after = func() bool {
	return true
}
