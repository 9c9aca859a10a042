package format

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// An API is what caused an event: a function of the driver that the hook wraps,
// or a source that reports on its own. Numbers are on disk: never reused.
//
// Functions are added without a new version of the format, so a reader meets
// numbers that it lacks. Their names are in trace.json. What replay must know
// of them is in the number itself: from laterAPI on, bits 12 to 15 are the
// Space and bits 8 to 11 what it does, a Kind, as in
//
//	APIMulticastCreate API = API(SpaceHandle)<<12 | API(Import)<<8 | 2
//
// Layer and class stand in each event.
type API uint16

// laterAPI is where the numbers of functions begin that came after version 1
// was frozen; a test holds that no other comes below.
const laterAPI API = 256

// A Space is a set of addresses or handles in which one value names one live
// allocation. A free finds its allocation by (process, space, value): that is
// why cuMemFree may free what cuMemAllocAsync took, while a PyTorch block may
// share its address with the segment that holds it.
type Space uint8

const (
	SpaceNone   Space = 0
	SpaceDevice Space = 1 // device pointers of the driver, stream-ordered ones included
	SpaceHost   Space = 2 // host pointers known to the driver
	SpaceHandle Space = 3 // VMM handles, in the object column
	SpaceObject Space = 4 // what the driver hands out as an opaque pointer, in the object column: CUarray, CUmipmappedArray, CUexternalMemory, CUgraphicsResource; and reserves
	SpaceTorch  Space = 5 // PyTorch's blocks
	SpaceCuPy   Space = 6 // CuPy's blocks, by pmem_id in the object column: a pool over a pool holds one address twice
	SpaceGo     Space = 7 // a Go program's own pool, by pmem_id like CuPy's
)

const (
	APINone                 API = 0
	APIMemAlloc             API = 1
	APIMemAllocPitch        API = 2
	APIMemAllocManaged      API = 3
	APIMemFree              API = 4
	APIMemAllocHost         API = 5
	APIMemHostAlloc         API = 6
	APIMemFreeHost          API = 7
	APIMemHostRegister      API = 8
	APIMemHostUnregister    API = 9
	APIMemAllocAsync        API = 10
	APIMemAllocAsyncPTSZ    API = 11
	APIMemAllocFromPool     API = 12
	APIMemAllocFromPoolPTSZ API = 13
	APIMemFreeAsync         API = 14
	APIMemFreeAsyncPTSZ     API = 15
	APIMemCreate            API = 16
	APIMemRelease           API = 17
	APIMemMap               API = 18
	APIMemUnmap             API = 19
	APIMemRetain            API = 20
	APIArrayCreate          API = 21
	APIArray3DCreate        API = 22
	APIArrayDestroy         API = 23
	APIMipmappedCreate      API = 24
	APIMipmappedDestroy     API = 25
	APIPrimaryCtxResetV1    API = 26
	APIPrimaryCtxReset      API = 27
	APIPrimaryCtxReleaseV1  API = 28
	APIPrimaryCtxRelease    API = 29
	APICtxDestroy           API = 30
	APIMemAllocV1           API = 31
	APIMemFreeV1            API = 32

	// Sources above the driver.
	APITorch     API = 200 // c10::reportMemoryUsageToProfiler
	APITorchOOM  API = 201 // c10::reportOutOfMemoryToProfiler
	APICuPy      API = 202 // a CuPy MemoryHook's malloc and free
	APICuPyAlloc API = 203 // a CuPy MemoryHook's alloc: an echo of the driver's
	APINVTX      API = 204 // ranges and marks
	APIScope     API = 205 // gpurec's own scopes, from Python, C or Go
	APIGoPool    API = 206 // recorder.Hook's malloc and free
	APIGoAlloc   API = 207 // recorder.Hook's alloc: the Go program's own driver calls
	APIGoFree    API = 208 // recorder.Hook's alloc given back, where the program says so
)

// Functions and sources that came after version 1.
const (
	APICtxDestroyV1    = API(Reset)<<8 | 1
	APICtxDetach       = API(Reset)<<8 | 2
	APIGreenCtxDestroy = API(Reset)<<8 | 3

	APIGraphAddNodeV1       = API(SpaceDevice)<<12 | 1 // takes or gives back, as the node's type says
	APIGraphAddNode         = API(SpaceDevice)<<12 | 2
	APIMemAllocPitchV1      = API(SpaceDevice)<<12 | API(Alloc)<<8 | 1
	APIGraphAddMemAllocNode = API(SpaceDevice)<<12 | API(Alloc)<<8 | 2
	APIGraphAddMemFreeNode  = API(SpaceDevice)<<12 | API(Free)<<8 | 1
	APIIpcClose             = API(SpaceDevice)<<12 | API(Release)<<8 | 1
	APIIpcOpenV1            = API(SpaceDevice)<<12 | API(Import)<<8 | 1
	APIIpcOpen              = API(SpaceDevice)<<12 | API(Import)<<8 | 2
	APIExternalBuffer       = API(SpaceDevice)<<12 | API(Import)<<8 | 3
	APIPoolImportPointer    = API(SpaceDevice)<<12 | API(Import)<<8 | 4

	APIMemAllocHostV1    = API(SpaceHost)<<12 | API(Alloc)<<8 | 1
	APIMemHostRegisterV1 = API(SpaceHost)<<12 | API(Alloc)<<8 | 2

	APIMapArray            = API(SpaceHandle)<<12 | 1 // maps or unmaps, as each entry of its list says
	APIMapArrayPTSZ        = API(SpaceHandle)<<12 | 2
	APIMulticastBindMem    = API(SpaceHandle)<<12 | API(Map)<<8 | 1
	APIMulticastBindMemV2  = API(SpaceHandle)<<12 | API(Map)<<8 | 2
	APIMulticastBindAddr   = API(SpaceHandle)<<12 | API(Map)<<8 | 3
	APIMulticastBindAddrV2 = API(SpaceHandle)<<12 | API(Map)<<8 | 4
	APIMulticastUnbind     = API(SpaceHandle)<<12 | API(Unmap)<<8 | 1
	APIMemImport           = API(SpaceHandle)<<12 | API(Import)<<8 | 1
	APIMulticastCreate     = API(SpaceHandle)<<12 | API(Import)<<8 | 2

	// What the driver keeps for a stream-ordered pool, or for graphs, asked of it
	// after what may have changed it. It is what those took from the device: it
	// grows by Allocs and shrinks by Frees of pieces that the hook numbers.
	APIPoolReserve  = API(SpaceObject)<<12 | 1
	APIGraphReserve = API(SpaceObject)<<12 | 2

	APIArrayCreateV1     = API(SpaceObject)<<12 | API(Alloc)<<8 | 1
	APIArray3DCreateV1   = API(SpaceObject)<<12 | API(Alloc)<<8 | 2
	APIExternalDestroy   = API(SpaceObject)<<12 | API(Release)<<8 | 1
	APIGraphicsUnmap     = API(SpaceObject)<<12 | API(Release)<<8 | 2
	APIGraphicsUnmapPTSZ = API(SpaceObject)<<12 | API(Release)<<8 | 3
	APIExternalImport    = API(SpaceObject)<<12 | API(Import)<<8 | 1
	APIExternalMipmapped = API(SpaceObject)<<12 | API(Import)<<8 | 2
	APIGraphicsMap       = API(SpaceObject)<<12 | API(Import)<<8 | 3
	APIGraphicsMapPTSZ   = API(SpaceObject)<<12 | API(Import)<<8 | 4
)

// An APIInfo is one row of the list.
type APIInfo struct {
	API   API
	Name  string // the exported symbol, or the source's name
	Layer Layer
	Class Class // where it depends on the arguments, the event says; this is the usual one
	Does  Kind  // Alloc, Free, Map, Unmap, Retain, Release, Reset; KindNone for sources of several kinds
	Space Space
	Hook  bool // an exported symbol of libcuda.so.1 that the hook wraps
}

// APIs is the one list of hooked functions and of sources, in the order of
// their numbers. The hook's declarations, look-ups and tables are generated
// from it.
var APIs = []APIInfo{
	{APIMemAlloc, "cuMemAlloc_v2", LayerDriver, ClassDevice, Alloc, SpaceDevice, true},
	{APIMemAllocPitch, "cuMemAllocPitch_v2", LayerDriver, ClassDevice, Alloc, SpaceDevice, true},
	{APIMemAllocManaged, "cuMemAllocManaged", LayerDriver, ClassManaged, Alloc, SpaceDevice, true},
	{APIMemFree, "cuMemFree_v2", LayerDriver, ClassDevice, Free, SpaceDevice, true},
	{APIMemAllocHost, "cuMemAllocHost_v2", LayerHost, ClassPinned, Alloc, SpaceHost, true},
	{APIMemHostAlloc, "cuMemHostAlloc", LayerHost, ClassPinned, Alloc, SpaceHost, true},
	{APIMemFreeHost, "cuMemFreeHost", LayerHost, ClassPinned, Free, SpaceHost, true},
	{APIMemHostRegister, "cuMemHostRegister_v2", LayerHost, ClassRegistered, Alloc, SpaceHost, true},
	{APIMemHostUnregister, "cuMemHostUnregister", LayerHost, ClassRegistered, Free, SpaceHost, true},
	{APIMemAllocAsync, "cuMemAllocAsync", LayerPool, ClassDevice, Alloc, SpaceDevice, true},
	{APIMemAllocAsyncPTSZ, "cuMemAllocAsync_ptsz", LayerPool, ClassDevice, Alloc, SpaceDevice, true},
	{APIMemAllocFromPool, "cuMemAllocFromPoolAsync", LayerPool, ClassDevice, Alloc, SpaceDevice, true},
	{APIMemAllocFromPoolPTSZ, "cuMemAllocFromPoolAsync_ptsz", LayerPool, ClassDevice, Alloc, SpaceDevice, true},
	{APIMemFreeAsync, "cuMemFreeAsync", LayerPool, ClassDevice, Free, SpaceDevice, true},
	{APIMemFreeAsyncPTSZ, "cuMemFreeAsync_ptsz", LayerPool, ClassDevice, Free, SpaceDevice, true},
	{APIMemCreate, "cuMemCreate", LayerDriver, ClassDevice, Alloc, SpaceHandle, true},
	{APIMemRelease, "cuMemRelease", LayerDriver, ClassDevice, Release, SpaceHandle, true},
	{APIMemMap, "cuMemMap", LayerDriver, ClassDevice, Map, SpaceHandle, true},
	{APIMemUnmap, "cuMemUnmap", LayerDriver, ClassDevice, Unmap, SpaceHandle, true},
	{APIMemRetain, "cuMemRetainAllocationHandle", LayerDriver, ClassDevice, Retain, SpaceHandle, true},
	{APIArrayCreate, "cuArrayCreate_v2", LayerDriver, ClassArray, Alloc, SpaceObject, true},
	{APIArray3DCreate, "cuArray3DCreate_v2", LayerDriver, ClassArray, Alloc, SpaceObject, true},
	{APIArrayDestroy, "cuArrayDestroy", LayerDriver, ClassArray, Free, SpaceObject, true},
	{APIMipmappedCreate, "cuMipmappedArrayCreate", LayerDriver, ClassArray, Alloc, SpaceObject, true},
	{APIMipmappedDestroy, "cuMipmappedArrayDestroy", LayerDriver, ClassArray, Free, SpaceObject, true},
	{APIPrimaryCtxResetV1, "cuDevicePrimaryCtxReset", LayerDriver, ClassNone, Reset, SpaceNone, true},
	{APIPrimaryCtxReset, "cuDevicePrimaryCtxReset_v2", LayerDriver, ClassNone, Reset, SpaceNone, true},
	{APIPrimaryCtxReleaseV1, "cuDevicePrimaryCtxRelease", LayerDriver, ClassNone, Reset, SpaceNone, true},
	{APIPrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", LayerDriver, ClassNone, Reset, SpaceNone, true},
	{APICtxDestroy, "cuCtxDestroy_v2", LayerDriver, ClassNone, Reset, SpaceNone, true},
	{APIMemAllocV1, "cuMemAlloc", LayerDriver, ClassDevice, Alloc, SpaceDevice, true},
	{APIMemFreeV1, "cuMemFree", LayerDriver, ClassDevice, Free, SpaceDevice, true},

	{APITorch, "torch", LayerPool, ClassDevice, KindNone, SpaceTorch, false},
	{APITorchOOM, "torch.oom", LayerPool, ClassDevice, AllocFailed, SpaceTorch, false},
	{APICuPy, "cupy", LayerPool, ClassDevice, KindNone, SpaceCuPy, false},
	{APICuPyAlloc, "cupy.alloc", LayerDriver, ClassDevice, Alloc, SpaceNone, false},
	{APINVTX, "nvtx", LayerNone, ClassNone, KindNone, SpaceNone, false},
	{APIScope, "scope", LayerNone, ClassNone, KindNone, SpaceNone, false},
	{APIGoPool, "go", LayerPool, ClassDevice, KindNone, SpaceGo, false},
	{APIGoAlloc, "go.alloc", LayerDriver, ClassDevice, Alloc, SpaceDevice, false},
	{APIGoFree, "go.free", LayerDriver, ClassDevice, Free, SpaceDevice, false},

	{APICtxDestroyV1, "cuCtxDestroy", LayerDriver, ClassNone, Reset, SpaceNone, true},
	{APICtxDetach, "cuCtxDetach", LayerDriver, ClassNone, Reset, SpaceNone, true},
	{APIGreenCtxDestroy, "cuGreenCtxDestroy", LayerDriver, ClassNone, Reset, SpaceNone, true},
	{APIGraphAddNodeV1, "cuGraphAddNode", LayerPool, ClassGraph, KindNone, SpaceDevice, true},
	{APIGraphAddNode, "cuGraphAddNode_v2", LayerPool, ClassGraph, KindNone, SpaceDevice, true},
	{APIMemAllocPitchV1, "cuMemAllocPitch", LayerDriver, ClassDevice, Alloc, SpaceDevice, true},
	{APIGraphAddMemAllocNode, "cuGraphAddMemAllocNode", LayerPool, ClassGraph, Alloc, SpaceDevice, true},
	{APIGraphAddMemFreeNode, "cuGraphAddMemFreeNode", LayerPool, ClassGraph, Free, SpaceDevice, true},
	{APIIpcClose, "cuIpcCloseMemHandle", LayerDriver, ClassImported, Release, SpaceDevice, true},
	{APIIpcOpenV1, "cuIpcOpenMemHandle", LayerDriver, ClassImported, Import, SpaceDevice, true},
	{APIIpcOpen, "cuIpcOpenMemHandle_v2", LayerDriver, ClassImported, Import, SpaceDevice, true},
	{APIExternalBuffer, "cuExternalMemoryGetMappedBuffer", LayerDriver, ClassImported, Import, SpaceDevice, true},
	{APIPoolImportPointer, "cuMemPoolImportPointer", LayerPool, ClassImported, Import, SpaceDevice, true},
	{APIMemAllocHostV1, "cuMemAllocHost", LayerHost, ClassPinned, Alloc, SpaceHost, true},
	{APIMemHostRegisterV1, "cuMemHostRegister", LayerHost, ClassRegistered, Alloc, SpaceHost, true},
	{APIMapArray, "cuMemMapArrayAsync", LayerDriver, ClassDevice, KindNone, SpaceHandle, true},
	{APIMapArrayPTSZ, "cuMemMapArrayAsync_ptsz", LayerDriver, ClassDevice, KindNone, SpaceHandle, true},
	{APIMulticastBindMem, "cuMulticastBindMem", LayerDriver, ClassDevice, Map, SpaceHandle, true},
	{APIMulticastBindMemV2, "cuMulticastBindMem_v2", LayerDriver, ClassDevice, Map, SpaceHandle, true},
	{APIMulticastBindAddr, "cuMulticastBindAddr", LayerDriver, ClassDevice, Map, SpaceHandle, true},
	{APIMulticastBindAddrV2, "cuMulticastBindAddr_v2", LayerDriver, ClassDevice, Map, SpaceHandle, true},
	{APIMulticastUnbind, "cuMulticastUnbind", LayerDriver, ClassDevice, Unmap, SpaceHandle, true},
	{APIMemImport, "cuMemImportFromShareableHandle", LayerDriver, ClassImported, Import, SpaceHandle, true},
	{APIMulticastCreate, "cuMulticastCreate", LayerDriver, ClassImported, Import, SpaceHandle, true},
	{APIPoolReserve, "pool.reserve", LayerDriver, ClassDevice, KindNone, SpaceObject, false},
	{APIGraphReserve, "graph.reserve", LayerDriver, ClassGraph, KindNone, SpaceObject, false},
	{APIArrayCreateV1, "cuArrayCreate", LayerDriver, ClassArray, Alloc, SpaceObject, true},
	{APIArray3DCreateV1, "cuArray3DCreate", LayerDriver, ClassArray, Alloc, SpaceObject, true},
	{APIExternalDestroy, "cuDestroyExternalMemory", LayerDriver, ClassImported, Release, SpaceObject, true},
	{APIGraphicsUnmap, "cuGraphicsUnmapResources", LayerDriver, ClassImported, Release, SpaceObject, true},
	{APIGraphicsUnmapPTSZ, "cuGraphicsUnmapResources_ptsz", LayerDriver, ClassImported, Release, SpaceObject, true},
	{APIExternalImport, "cuImportExternalMemory", LayerDriver, ClassImported, Import, SpaceObject, true},
	{APIExternalMipmapped, "cuExternalMemoryGetMappedMipmappedArray", LayerDriver, ClassImported, Import, SpaceObject, true},
	{APIGraphicsMap, "cuGraphicsMapResources", LayerDriver, ClassImported, Import, SpaceObject, true},
	{APIGraphicsMapPTSZ, "cuGraphicsMapResources_ptsz", LayerDriver, ClassImported, Import, SpaceObject, true},
}

// Watched are the functions that the hook wraps although no event bears their
// name: what they do to reserves, to what may be asked, or to a process is told
// by another event or by a Mark.
var Watched = []string{
	"cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolTrimTo", "cuDeviceGraphMemTrim",
	"cuGraphLaunch", "cuGraphLaunch_ptsz", "cuGraphUpload", "cuGraphUpload_ptsz",
	"cuStreamBeginCapture", "cuStreamBeginCapture_ptsz", "cuStreamBeginCapture_v2", "cuStreamBeginCapture_v2_ptsz",
	"cuStreamBeginCaptureToGraph", "cuStreamBeginCaptureToGraph_ptsz", "cuStreamEndCapture", "cuStreamEndCapture_ptsz",
	"cuStreamSynchronize", "cuStreamSynchronize_ptsz", "cuEventSynchronize", "cuCtxSynchronize",
	"cuCheckpointProcessCheckpoint", "cuCheckpointProcessRestore",
}

// UnhookedWords say which functions of libcuda that have no wrapper may take
// memory all the same: those of a newer driver, of whose names one has such a
// word and no "Get". Each looked up is an Unhooked event. Up to CUDA 13 every
// function that takes memory for a program, or makes another's reachable, has a
// wrapper, but for frames of EGL streams, which are memory of others. Code
// (cuModuleLoad, cuLibraryLoad), CUcontexts and their limits take device memory
// too: how much, no function says, and peak infers it from NVML.
var UnhookedWords = []string{"Alloc", "MemCreate", "ArrayCreate", "Array3DCreate", "HostRegister", "OpenMemHandle", "GraphAddNode", "MapArray", "MemImport", "ImportPointer"}

// apiRow finds a row by number in one step; filled once from the list, which
// is never changed.
var apiRow = func() (t [1 << 16]uint16) {
	for i, a := range APIs {
		t[a.API] = uint16(i) + 1
	}
	return t
}()

// Known reports whether this build has a row of a.
func (a API) Known() bool { return a == APINone || apiRow[a] != 0 }

// Info returns the row of a, or what a number says itself where a newer writer
// knew more functions than we do.
func (a API) Info() APIInfo {
	if row := apiRow[a]; row != 0 {
		return APIs[row-1]
	}
	if a < laterAPI {
		return APIInfo{API: a}
	}
	return APIInfo{API: a, Does: Kind(a >> 8 & 15), Space: Space(a >> 12)}
}

// Space is the space in which an event of this API names its allocation.
func (a API) Space() Space {
	if row := apiRow[a]; row != 0 {
		return APIs[row-1].Space
	}
	return Space(a >> 12)
}

// String is the name in our list, or the number. Defs.API knows more names.
func (a API) String() string {
	switch row := apiRow[a]; {
	case row != 0:
		return APIs[row-1].Name
	case a == APINone:
		return "none"
	}
	return fmt.Sprintf("api %d", uint16(a))
}

// ParseAPI is the inverse of API.String.
func ParseAPI(s string) (API, error) {
	if s == "none" {
		return APINone, nil
	}
	for _, a := range APIs {
		if a.Name == s {
			return a.API, nil
		}
	}
	if digits, ok := strings.CutPrefix(s, "api "); ok {
		if n, err := strconv.ParseUint(digits, 10, 16); err == nil {
			return API(n), nil
		}
	}
	return 0, fmt.Errorf("unknown api %.40q", s)
}

// APINames are the names of functions that a newer writer knew and our list
// lacks.
type APINames map[API]string

// Limits of the names of a trace.
const (
	maxAPINames = 1024
	maxAPIName  = 256 // bytes
)

// all is n with the names of our list, as trace.json has them.
func (n APINames) all() map[API]string {
	all := maps.Clone(map[API]string(n))
	if all == nil {
		all = map[API]string{}
	}
	for _, a := range APIs {
		all[a.API] = a.Name
	}
	return all
}

// add adds a name, unless our list has one for a. A name that is another's
// could not be read back from a text.
func (n APINames) add(a API, name string) error {
	switch {
	case name == "" || len(name) > maxAPIName:
		return fmt.Errorf("the name of api %d has %d bytes; 1 to %d are right", uint16(a), len(name), maxAPIName)
	case a.Known():
		return nil
	case len(n) >= maxAPINames:
		return fmt.Errorf("more than %d names of apis", maxAPINames)
	}
	if _, err := ParseAPI(name); err == nil {
		return fmt.Errorf("the name of api %d is another's: %q", uint16(a), name)
	}
	for b, other := range n {
		if other == name && b != a {
			return fmt.Errorf("apis %d and %d have one name: %q", min(a, b), max(a, b), name)
		}
	}
	n[a] = name
	return nil
}

// UnmarshalJSON reads the names of trace.json.
func (n *APINames) UnmarshalJSON(b []byte) error {
	var all map[API]string
	err := json.Unmarshal(b, &all)
	if err == nil {
		*n, err = theirs(all)
	}
	return err
}

// theirs are the names of those that our list lacks, nil where it lacks none.
func theirs(all map[API]string) (APINames, error) {
	names := APINames{}
	for _, a := range slices.Sorted(maps.Keys(all)) {
		if err := names.add(a, all[a]); err != nil {
			return nil, err
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	return names, nil
}
