// The frame of every kernel that only looks up a table: $name computes `value` for item `i` with input `x`.

struct Parameters {
    count: u32,
    stride: u32,
}
var<immediate> parameters: Parameters;

@group(0) @binding(0) var<$space> table: array<vec4<f32>, $rows>;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;
$tile
const threads = 256u;
const rows = $rowsu;

@compute @workgroup_size(256)
fn $name(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    $stage
    for (var i = id.x; i < parameters.count; i += parameters.stride) {
        let x = input[i];
        var value = 0.0;
        $body
        output[i] = value;
    }
}
