// Package worktree is the folder's side of a sync: it scans the folder, reads its files and stages new ones.
//
//	Walk ──► Listing ──Compare with Index──► Tree{Nodes, Stats} ──► Hash: only files whose stat changed
//	ReadSmall, ReadChunks, HashFile: a file that changes while it is read is read again
//	Stage ──► Writer: files complete and durable before they are renamed into the folder
//
// All access goes through an [os.Root], so no path and no symlink leads outside the folder.
package worktree
