// output[i] = input[i] * factor + term

struct Parameters {
    count: u32,
    factor: f32,
    term: f32,
}
var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

@compute @workgroup_size(256)
fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < parameters.count) {
        output[id.x] = input[id.x] * parameters.factor + parameters.term;
    }
}
