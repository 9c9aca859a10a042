//go:build !linux && !darwin

package symbols

func lock(string) (unlock func(), err error) { return func() {}, nil }
