"""Ready-made Spark pipelines around topics.

``magnetar pipeline NAME --config FILE`` runs the pipeline NAME, by
:func:`magnetar.spark.pipelines.run.run_pipeline`.
"""
