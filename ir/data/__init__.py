"""What values are while a program runs: distributions, draws, trees and canvases, independent of any backend."""
