"""Makes the ONNX models of the tests: `python make_onnx.py` beside them, with onnx 1.23."""

import onnx
from onnx import TensorProto, helper
from onnx.helper import make_graph, make_node, make_tensor, make_tensor_value_info as info

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


def save(name, graph, is_inferred=True):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    if is_inferred:
        model = onnx.shape_inference.infer_shapes(model, data_prop=True, strict_mode=True)
    onnx.save(model, f"{name}.onnx")


def weight(name, *shape):
    count = 1
    for size in shape:
        count *= size
    return make_tensor(name, FLOAT, shape, [0.5] * count)


def perceptron():
    nodes = [
        make_node("MatMul", ["x", "one.weight"], ["/one/MatMul_output"], "/one/MatMul"),
        make_node("Relu", ["/one/MatMul_output"], ["/Relu_output"], "/Relu"),
        make_node("MatMul", ["/Relu_output", "two.weight"], ["/two/MatMul_output"], "/two/MatMul"),
        make_node("Add", ["/two/MatMul_output", "x"], ["y"], "/Add"),
    ]
    weights = [weight("one.weight", 16, 32), weight("two.weight", 32, 16)]
    return make_graph(nodes, "perceptron", [info("x", FLOAT, ["batch", 16])], [info("y", FLOAT, ["batch", 16])], weights)


def branches():
    def branch(name, operators):
        nodes, before = [], "h"
        for number, operator in enumerate(operators):
            nodes.append(make_node(operator, [before], [f"{name}_{number}"]))
            before = f"{name}_{number}"
        return make_graph(nodes, name, [], [info(before, FLOAT, [64])])

    nodes = [
        make_node("Exp", ["x"], ["h"]),
        make_node("If", ["is_long"], ["chosen"], then_branch=branch("long", ["Relu", "Neg", "Exp"]), else_branch=branch("short", ["Neg"])),
        make_node("Constant", [], ["scale"], value=make_tensor("scale", FLOAT, [64], [2.0] * 64)),
        make_node("Mul", ["chosen", "scale"], ["y"]),
    ]
    return make_graph(nodes, "branches", [info("is_long", BOOL, []), info("x", FLOAT, [64])], [info("y", FLOAT, [64])])


def loop():
    body = make_graph(
        [make_node("Add", ["state", "h"], ["sum"]), make_node("Exp", ["sum"], ["next"]), make_node("Identity", ["go_on"], ["goes_on"])],
        "body",
        [info("number", INT64, []), info("go_on", BOOL, []), info("state", FLOAT, [64])],
        [info("goes_on", BOOL, []), info("next", FLOAT, [64])],
    )
    nodes = [make_node("Exp", ["x"], ["h"]), make_node("Loop", ["count", "", "x"], ["y"], body=body)]
    return make_graph(nodes, "loop", [info("x", FLOAT, [64])], [info("y", FLOAT, [64])], [make_tensor("count", INT64, [], [4])])


def external():
    """The data of its weight is in a file that is not there."""
    graph = perceptron()
    for tensor in graph.initializer:
        tensor.ClearField("float_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="nowhere.bin")
    return graph


if __name__ == "__main__":
    save("perceptron", perceptron())
    save("unshaped", perceptron(), is_inferred=False)
    save("branches", branches())
    save("loop", loop())
    onnx.save(onnx.shape_inference.infer_shapes(helper.make_model(external())), "external.onnx")
