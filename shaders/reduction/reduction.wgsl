// The sum of each group's share of the input: groups walk the input in strides, and add up in shared memory.

struct Parameters {
    count: u32,
    groups: u32,
}
var<immediate> parameters: Parameters;

override shared_words: u32 = 256u;

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
var<workgroup> sums: array<f32, shared_words>;

@compute @workgroup_size(256)
fn reduction(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var sum = 0.0;
    for (var i = group.x * 256u + lane; i < parameters.count; i += parameters.groups * 256u) {
        sum += input[i];
    }
    sums[lane] = sum;
    workgroupBarrier();
    for (var half = 128u; half > 0u; half /= 2u) {
        if (lane < half) {
            sums[lane] += sums[lane + half];
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        output[group.x] = sums[0];
    }
}
