package model

// mix hashes words to one, each bit of which depends on all of them: the
// finaliser of splitmix64 over a running state. It is the project's counter-based
// generator: a draw is named by its words and has no state.
func mix(words ...uint64) uint64 {
	state := uint64(0)
	for _, word := range words {
		state = finalize(state + 0x9e3779b97f4a7c15 + word)
	}
	return state
}

func finalize(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
