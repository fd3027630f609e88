// What shared memory holds when a group starts, and a word that the group leaves there.

struct Parameters {
    words: u32,
    before: u32,
    canary: u32,
    after: u32,
}
var<immediate> parameters: Parameters;

override shared_words: u32 = 256u;

@group(0) @binding(0) var<storage, read_write> output: array<u32>;
var<workgroup> left: array<u32, shared_words>;

@compute @workgroup_size(256)
fn residue(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = lane; i < parameters.words; i += 256u) {
        if (parameters.before != 0u) {
            left[i] = 0u;
        }
        output[group.x * parameters.words + i] = left[i];
        left[i] = parameters.canary;
    }
    workgroupBarrier();
    // Looks at what other threads left, so that no compiler leaves it out.
    for (var i = lane; i < parameters.words; i += 256u) {
        let other = parameters.words - 1u - i;
        output[group.x * parameters.words + i] ^= left[other] ^ parameters.canary;
    }
    workgroupBarrier();
    if (parameters.after != 0u) {
        for (var i = lane; i < parameters.words; i += 256u) {
            left[i] = 0u;
        }
        workgroupBarrier();
        for (var i = lane; i < parameters.words; i += 256u) {
            output[group.x * parameters.words + i] ^= left[parameters.words - 1u - i];
        }
    }
}
