// A bilateral filter: neighbours count by how near they are and how alike. The table holds both weights: first those of
// the square of neighbours, row by row, then 256 for the difference of two values; four to a row of the table.

struct Parameters {
    width: u32,
    height: u32,
    radius: u32,
}
var<immediate> parameters: Parameters;

@group(0) @binding(0) var<$space> table: array<vec4<f32>, $rows>;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;
$tile
const threads = 256u;

@compute @workgroup_size(16, 16)
fn bilateral(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    $stage
    if (id.x >= parameters.width || id.y >= parameters.height) {
        return;
    }
    let last = vec2<i32>(i32(parameters.width) - 1, i32(parameters.height) - 1);
    let radius = i32(parameters.radius);
    let side = 2u * parameters.radius + 1u;
    let center = input[id.y * parameters.width + id.x];
    var sum = 0.0;
    var weight = 0.0;
    var tap = 0u;
    for (var dy = -radius; dy <= radius; dy++) {
        let y = clamp(i32(id.y) + dy, 0, last.y);
        for (var dx = -radius; dx <= radius; dx++) {
            let x = clamp(i32(id.x) + dx, 0, last.x);
            let value = input[u32(y) * parameters.width + u32(x)];
            let alike = side * side + min(u32(abs(value - center) * 255.0), 255u);
            let w = $table[tap / 4u][tap % 4u] * $table[alike / 4u][alike % 4u];
            sum += w * value;
            weight += w;
            tap++;
        }
    }
    output[id.y * parameters.width + id.x] = sum / weight;
}
